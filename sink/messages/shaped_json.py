"""`ShapedJson`: `to_json` for the documents of one table, at half its cost where they are alike. Pure, and called for each change.

Documents of a table mostly have the same fields, of the same types and in the same order. That is their shape. For each shape a function is
made, in which one struct reads each run of fields up to one whose size varies. For {_id: 7, n: 8, s: "x", t: 9} it is

    def text(raw):
        end, at = len(raw) - 1, 4
        if at + 23 > end: return
        n0, v0, n1, v1, n2, v2 = unpack0(raw, at)                           # 5si3si3si
        if n0 != N0 or n1 != N1 or n2 != N2: return                         # the types and names
        begin, at = at + 23, at + 23 + v2
        v2 = quoted(raw[begin:at - 1].decode())
        if at + 7 > end: return
        n3, v3 = unpack1(raw, at)                                           # 3si
        if n3 != N3: return
        at += 7
        if at != end or raw[end]: return
        return f'{T0}{v0}{T1}{v1}{T2}{v2}{T3}{v3}{REST}'

    T0 = {"_id": {"$numberInt": "   T1 = "}, "n": {"$numberInt": "   T2 = "}, "s":    T3 = , "t": {"$numberInt": "   REST = "}}

No byte of a document gets into the source of such a function. A document of another shape is written by `to_json`, and its shape is the one
that is tried from then on. Where that happens again and again, or a document has a field of a seldom type, `to_json` writes all for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from json.encoder import encode_basestring
from struct import Struct
from typing import Any, TypeAlias

from sluice_client.extended_json import CANONICAL, Dialect, field_name, infinite, iso_date, to_json

_DOUBLE, _STRING, _DOCUMENT, _ARRAY, _OBJECT_ID, _BOOLEAN = 0x01, 0x02, 0x03, 0x04, 0x07, 0x08
_DATE, _NULL, _INT32, _INT64 = 0x09, 0x0A, 0x10, 0x12
_NESTED = {_DOCUMENT: "document", _ARRAY: "array"}
_SIZE_BYTES = 4
"""Of the size of a document, and of a string or a document in a field."""
_SIZES = {_INT32: 4, _INT64: 8, _DOUBLE: 8, _DATE: 8, _OBJECT_ID: 12, _BOOLEAN: 1, _NULL: 0}
_MOST_FIELDS, _MOST_SHAPES = 100, 2_000
_FEW_HITS, _MOST_MISSES, _REST_DOCUMENTS = 4, 50, 10_000

_size: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_Field: TypeAlias = tuple[int, bytes]
"""Type and name."""
_Writer: TypeAlias = Callable[[bytes], str | None]
"""Of the documents of one shape; None for others."""


class ShapedJson:
    def __init__(self, dialect: Dialect = CANONICAL) -> None:
        self._dialect = dialect
        self._last: _Writer | None = None
        self._hits = self._misses = self._resting = 0

    def text(self, document: bytes) -> str:
        """The document begins and ends with these bytes."""
        last = self._last
        if last is not None:
            try:
                text = last(document)
            except UnicodeDecodeError:
                return to_json(document, self._dialect)  # it says what is wrong
            if text is not None:
                self._hits += 1
                return text
        text = to_json(document, self._dialect)
        self._look_for_shape(document)
        return text

    def _look_for_shape(self, document: bytes) -> None:
        """Of one that has a JSON."""
        if self._resting:
            self._resting -= 1
            return
        self._misses = self._misses + 1 if self._hits < _FEW_HITS else 0
        self._hits = 0
        if self._misses >= _MOST_MISSES or (fields := _fields_of(document)) is None:
            self._last, self._misses, self._resting = None, 0, _REST_DOCUMENTS
            return
        self._last = _writer_of(fields, self._dialect)


def _fields_of(document: bytes) -> tuple[_Field, ...] | None:
    """None if there is none, if there are many, or if one has a seldom type."""
    at, end = _SIZE_BYTES, len(document) - 1
    fields: list[_Field] = []
    while at < end:
        kind, name_end = document[at], document.find(0, at + 1)
        fields.append((kind, document[at + 1 : name_end]))
        at = name_end + 1
        if kind in _SIZES:
            at += _SIZES[kind]
        elif kind == _STRING:
            at += _SIZE_BYTES + _size(document, at)[0]
        elif kind in _NESTED:
            at += _size(document, at)[0]
        else:
            return None
        if len(fields) > _MOST_FIELDS:
            return None
    return tuple(fields) or None


@lru_cache(_MOST_SHAPES)
def _writer_of(fields: tuple[_Field, ...], dialect: Dialect) -> _Writer:
    """Tables that are alike share it."""
    double, double_end = dialect.forms.double

    def double_text(value: float) -> str:
        return f"{double}{value!r}{double_end}" if value - value == 0.0 else infinite(value)

    scope: dict[str, Any] = {
        "quoted": encode_basestring,
        "double": double_text,
        "date": iso_date,
        "booleans": ("false", "true"),
        "document": dialect.nested,
        "array": dialect.array,
    }
    forms = _forms(dialect)
    lines = [f"end, at = len(raw) - 1, {_SIZE_BYTES}"]
    text, values = "{", ""
    layout, run = "<", list[tuple[str, str]]()
    for number, (kind, name) in enumerate(fields):
        code, before, after, value = forms[kind]
        text += f"{dialect.forms.comma if number else ''}{field_name(name)}{before}"
        if value:
            scope[f"T{number}"], text = text, after
            values += f"{{T{number}}}{{{value.format(f'v{number}')}}}"
        scope[f"N{number}"] = bytes([kind]) + name + b"\0"
        layout += f"{len(name) + 2}s{code}"
        run.append((f"n{number}", f"v{number}" if code else ""))
        varies = kind == _STRING or kind in _NESTED
        if varies or number == len(fields) - 1:
            struct = Struct(layout)
            scope[f"unpack{number}"] = struct.unpack_from
            targets = ", ".join(name for pair in run for name in pair if name)
            unlike = " or ".join(f"{name} != {name.upper()}" for name, _ in run)
            lines += (
                f"if at + {struct.size} > end: return",
                f"{targets}, = unpack{number}(raw, at)",
                f"if {unlike}: return",
                f"at += {struct.size}",
            )
            layout, run = "<", []
        if kind == _STRING:
            lines += (f"begin, at = at, at + v{number}", f"v{number} = quoted(raw[begin:at - 1].decode())")
        elif varies:
            lines += (f"begin, at = at - {_SIZE_BYTES}, at - {_SIZE_BYTES} + v{number}",)
            lines += (f"v{number} = {_NESTED[kind]}(raw, begin)",)
    scope["REST"] = f"{text}}}"
    lines += ("if at != end or raw[end]: return", f"return f'{values}{{REST}}'")
    exec("def text(raw):\n" + "".join(f"    {line}\n" for line in lines), scope)  # noqa: S102 - made of the lines above alone
    writer: _Writer = scope["text"]
    return writer


def _forms(dialect: Dialect) -> dict[int, tuple[str, str, str, str]]:
    """By type: the layout of its value, what stands before and behind its text, and what its text is."""
    forms = dialect.forms
    date = ("", "", "date({})") if forms.date is None else (*forms.date, "{}")
    return {
        _INT32: ("i", *forms.int32, "{}"),
        _INT64: ("q", *forms.int64, "{}"),
        _DOUBLE: ("d", "", "", "double({})"),
        _DATE: ("q", *date),
        _OBJECT_ID: ("12s", '{"$oid": "', '"}', "{}.hex()"),
        _BOOLEAN: ("?", "", "", "booleans[{}]"),
        _NULL: ("", "null", "", ""),
        _STRING: ("i", "", "", "{}"),
        _DOCUMENT: ("i", "", "", "{}"),
        _ARRAY: ("i", "", "", "{}"),
    }
