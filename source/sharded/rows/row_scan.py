r"""`row_scan`: the header of an entry of a shard's oplog. What a migration copies or cleans up is no row of a user. Pure.

Of a key, the fields of a shard key and the `_id`, the `_id` alone is taken, as a table's shard key may change. Keys of one table are alike:
where values have fixed sizes, the `_id` is where it was in the last key of this length, if both names are there again.

    15 00 00 00   10 k\0 01 00 00 00   10 _id\0 07 00 00 00   00
                  ^^^^^                ^^^^^^^^
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from changefeed.bson_bytes import USUAL_SIZES, fields_of, value_end_of
from source.oplog.row_entry import ROWS, MalformedEntry, scanner, walk
from source.raw_row import Header

FROM_MIGRATE = b"\x08fromMigrate\0\x01"
_ID = b"_id\0"
_INSERT, _NOOP = b"insert", b"noop"
_MOST_FORMS = 1_000

_new = tuple.__new__


def row_scan(
    ids: Mapping[bytes, bytes], alone: tuple[bytes, bytes] | None = None, *, whole_keys: bool
) -> Callable[[bytes], Header]:
    """`ids`: the tables of UUIDs that superseded a table's first one. `whole_keys`: with the fields of the shard key. `alone`: see `scanner`."""
    of_key, table_of = _whole if whole_keys else id_cut(), ids.get
    scan = scanner(partial(_unusual, of_key, alone), of_key, ids_alone=not whole_keys, alone=alone)

    def scan_named(entry: bytes) -> Header:
        header = scan(entry)
        uuid = header[5]
        table = table_of(uuid, uuid)
        if table is uuid:
            return header
        return _new(Header, header[:5] + (table,) + header[6:])  # noqa: RUF005 - half the time of unpacking

    return scan_named if ids else scan


def _unusual(of_key: Callable[[bytes], bytes], alone: tuple[bytes, bytes] | None, entry: bytes) -> Header:
    header = walk(entry)
    if header.type in ROWS:
        header = header._replace(type=_NOOP) if from_migrate(entry) else header._replace(key=of_key(header.key))
    return header if alone is None else header._replace(token=alone[header.type == _INSERT])


def from_migrate(entry: bytes) -> bool:
    """A document may contain the bytes too."""
    return FROM_MIGRATE in entry and fields_of(entry).get(b"fromMigrate") == FROM_MIGRATE


def _whole(key: bytes) -> bytes:
    return key


def id_cut() -> Callable[[bytes], bytes]:
    """Cuts the `_id` out of keys."""
    forms: dict[int, _Form] = {}

    def id_of(key: bytes) -> bytes:
        form = forms.get(len(key))
        if form is not None:
            first_end, first, at, id_name, size = form
            if key[4:first_end] == first and key[at : at + 5] == id_name:
                return size + key[at:]
        if not key:
            return key
        at, end = _id_span(key)
        form = _form_of(key, at, end)
        if form is not None and len(forms) < _MOST_FORMS:
            forms[len(key)] = form
        return (end - at + 5).to_bytes(4, "little") + key[at:end] + b"\0"

    return id_of


class _Form(NamedTuple):
    first_end: int
    first: bytes
    """Type and name of the field before the `_id`."""
    id_at: int
    id_name: bytes
    size: bytes


def _form_of(key: bytes, at: int, end: int) -> _Form | None:
    """Of a key that ends with its `_id`, with one field before it or none, if their values have fixed sizes."""
    if key[at] not in USUAL_SIZES or end != len(key) - 1:
        return None
    first_end = 4 if at == 4 else key.index(0, 5) + 1
    if at != 4 and first_end + USUAL_SIZES.get(key[4], len(key)) != at:
        return None
    return _Form(first_end, key[4:first_end], at, key[at : at + 5], (end - at + 5).to_bytes(4, "little"))


def _id_span(key: bytes) -> tuple[int, int]:
    at, last = 4, len(key) - 1
    while at < last:
        kind, value_at = key[at], key.index(0, at + 1) + 1
        end = value_at + USUAL_SIZES[kind] if kind in USUAL_SIZES else value_end_of(key, kind, value_at)
        if key[at + 1 : value_at] == _ID:
            return at, end
        at = end
    raise MalformedEntry("the key of a row has no _id")
