"""`scan`: the header fields of a row entry of the oplog, found in the bytes by offset. Pure.

This is the hot path, like `source.stream.change_event` for change streams, and gives the same `Header`: its spans are the places of
the document or the raw update in the entry. An entry with the usual layout is compared by whole stretches of bytes. Any other entry is
walked element by element.

    [lsid, txnNumber]   opening (the same for a table's inserts)   content            closing
    of a retryable      02 op .. 02 ns .. 05 ui ..                 03 o {..}          [stmtId] 11 ts .. t, v, wall, prevOpTime
                                                                   [03 o2 {..}]

An operation of a transaction is made into its own entry: with the time at which the transaction became visible, and with `place`,
its index among the operations of that time.

`place`: places inside one entry of the oplog.

The operations of an entry, or of the chain of entries of a large transaction, happen at one cluster time. The token of a position
between them is the index of the next operation, so that the positions of this capture sort as the operations do:

    entry at 100.1: one insert                         100.1/00000000
    entry at 100.2: applyOps [insert, update]          100.2/00000000, 100.2/00000001
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error

from changefeed.bson_bytes import USUAL_SIZES, document_of, elements, fields_of, string
from changefeed.cluster_time import ClusterTime
from changefeed.errors import InvariantError
from changefeed.position import Position
from source.oplog.update import description, is_replacement, upserting
from source.raw_row import WALL_SIZE, Header, RowAbout, milliseconds, transaction_of

_INT32: Callable[[bytes, int], tuple[int]] = Struct("<i").unpack_from
_INT64: Callable[[bytes, int], tuple[int]] = Struct("<q").unpack_from
_TIME: Callable[[bytes, int], tuple[bytes, int, bytes]] = Struct("<4sQ7s").unpack_from
"""What `ts` is called, its value, and what follows."""
_UINT64: Callable[[bytes, int], tuple[int]] = Struct("<Q").unpack_from

_LSID, _NUMBER = b"\x03lsid\0", b"\x12txnNumber\0"
_LSID_AT = 4 + len(_LSID)
_NUMBER_SIZE = len(_NUMBER) + 8
_UI = b"\x05ui\0\x10\0\0\0\x04"
_O, _O2, _STATEMENT, _TS = b"\x03o\0", b"\x03o2\0", b"\x10stmtId\0", b"\x11ts\0"
_STATEMENT_SIZE = len(_STATEMENT) + 4
_PLACE, _UPSERTS, _UPSERT = b"\x10place\0", b"\x08upserts\0\x01", b"\x08b\0\x01"
_ID = b"_id\0"
_FIRST_IDS = {bytes([kind]) + _ID: ((10 + size).to_bytes(4, "little"), 9 + size) for kind, size in USUAL_SIZES.items()}
"""By the type and name of a document's first field: the size of its `{_id: value}`, and where its value ends."""
_BUCKETS = b"system.buckets."
_WALL = b"\x09wall\0"
_WALL_AT, _WALL_END = len(_WALL), len(_WALL) + WALL_SIZE
_TIME_FIRST = 0x11
"""The type of `ts`, where an entry begins with it."""
_FIRST = b"00000000"
_SHARD_PLACE, _DIGITS = b"\x02place\0\x19\0\0\0", 24
_SHARD_PLACE_SIZE = len(_SHARD_PLACE) + _DIGITS + 1
_MOST_INDEX = 0xFFFF_FFFF
_RETRYABLE_WRITES = b"\0\x01\0\0\0"
_REST_SIZES = frozenset({49, 89})
"""Of what the server writes last: `ts`, `t`, `v`, `wall`, and `prevOpTime` of a retryable write."""
_MOST_OPENINGS = 100_000
_new = tuple.__new__


def _head(op: bytes) -> bytes:
    return b"\x02op\0" + (len(op) + 1).to_bytes(4, "little") + op + b"\0\x02ns\0"


_TYPES = {b"i": b"insert", b"u": b"update", b"d": b"delete"}
ROWS = frozenset({b"insert", b"update", b"replace", b"delete"})
_OTHERS = {b"c": b"command", **dict.fromkeys((b"n", b"xi", b"xd", b"ci", b"cu", b"cd", b"km"), b"noop")}
"""All but the first two are internal entries of the server about indexes and keys."""
UNKNOWN = b"unknown "
_HEADS = {_head(op): kind for op, kind in {**_TYPES, **_OTHERS}.items()}
_HEAD_SIZE = len(_head(b"i"))

_TO_O = 4 + 25 + len(_O)
"""Without the text of the name: its size, `ui`, and the name of `o`."""

_openings: dict[bytes, tuple[bytes, bytes, bytes]] = {}
"""Type, raw `ns` document and UUID, by the bytes from `op` to the document `o`."""


class MalformedEntry(InvariantError):
    """These bytes are not an entry of an oplog."""


def scanner(  # noqa: C901 - see `scan`
    unusual: Callable[[bytes], Header],
    of_key: Callable[[bytes], bytes] | None = None,
    *,
    ids_alone: bool = False,
    alone: tuple[bytes, bytes] | None = None,
) -> Callable[[bytes], Header]:
    """The header of an entry, or of an operation that was made into one. Its type is that of a row event, or command, noop or unknown.

    `unusual`: for an entry with other fields than usual before the time. `of_key`: for entries of shards, what of a row's key is to be taken; then
    an entry is unusual also if it may have other fields behind the time. `ids_alone`: that is the `_id`, so that an insert's key is in its document.
    `alone`: the place of a row that is the only one of its time, and that of an insert; without it, an entry of a shard may have its place as its last field.
    """
    first, inserted = alone or (_FIRST, _FIRST)
    carries = of_key is not None and alone is None

    def scan(entry: bytes) -> Header:  # noqa: C901, PLR0911, PLR0912 - in one piece, since each call is a twentieth of it
        at = 4
        try:
            if entry.startswith(_LSID, 4):
                at = _LSID_AT + _INT32(entry, _LSID_AT)[0]
                if entry.startswith(_NUMBER, at):
                    at += _NUMBER_SIZE
            ns_at = at + _HEAD_SIZE
            o_at = ns_at + _TO_O + _INT32(entry, ns_at)[0]
            opening = _openings.get(entry[at:o_at]) or _opening(entry, at, ns_at, o_at)
            if opening is None:
                return unusual(entry)
            kind, ns, uuid = opening
            end = o_end = o_at + _INT32(entry, o_at)[0]
            if entry.startswith(_O2, end):
                end += 4 + _INT32(entry, end + 4)[0]
            o2_end = end
            if entry.startswith(_STATEMENT, end):
                end += _STATEMENT_SIZE
            ts, time, behind = _TIME(entry, end)
        except error:
            return unusual(entry)
        token = first
        if of_key is not None:
            rest = len(entry) - end
            if carries and entry.startswith(_SHARD_PLACE, -_SHARD_PLACE_SIZE - 1):
                token, rest = entry[-_DIGITS - 2 : -2], rest - _SHARD_PLACE_SIZE
            if behind != _PLACE and rest not in _REST_SIZES:
                return unusual(entry)
        elif behind == _PLACE:
            token = b"%08X" % _INT32(entry, end + 19)[0]
        if ts != _TS:
            return unusual(entry)
        if kind == b"insert":
            if ids_alone and (form := _FIRST_IDS.get(entry[o_at + 4 : o_at + 9])) is not None:
                key = form[0] + entry[o_at + 4 : o_at + form[1]] + b"\0"
            else:
                key = entry[o_end + 4 : o2_end] or _key_of(entry, o_at, o_end)
                key = key if of_key is None else of_key(key)
            token = inserted if token is first else token
            return _new(Header, (kind, time, token, ns, key, uuid, o_at, o_end, 0, 0, 0, 0, None))
        key = entry[o_at:o_end] if kind == b"delete" else entry[o_end + 4 : o2_end]
        if of_key is not None and kind in ROWS:
            key = of_key(key)
        if kind == b"update":
            if is_replacement(entry[o_at:o_end]):
                return _new(Header, (b"replace", time, token, ns, key, uuid, o_at, o_end, 0, 0, 0, 0, None))
            return _new(Header, (kind, time, token, ns, key, uuid, 0, 0, o_at, o_end, 0, 0, None))
        return _new(Header, (kind, time, token, ns, key, uuid, 0, 0, 0, 0, 0, 0, None))

    return scan


def _opening(entry: bytes, at: int, ns_at: int, o_at: int) -> tuple[bytes, bytes, bytes] | None:
    """The bytes from `op` to the document `o`, which follows `ui`."""
    ui_at = o_at - len(_O) - 25
    kind = _HEADS.get(entry[at:ns_at])
    if kind is None or entry[ui_at : ui_at + 9] != _UI or not entry.startswith(_O, o_at - len(_O)):
        return None
    if len(_openings) >= _MOST_OPENINGS:
        _openings.clear()
    found = kind, _namespace(entry[ns_at + 4 : ui_at - 1]), entry[ui_at + 9 : ui_at + 25]
    _openings[entry[at:o_at]] = found
    return found


def _namespace(text: bytes) -> bytes:
    """In the form of the raw `ns` of a change event. Buckets are rows of their time series."""
    db, _, coll = text.partition(b".")
    coll = coll.removeprefix(_BUCKETS) or coll
    names = [b"\x02" + name + string(value) for name, value in ((b"db\0", db), (b"coll\0", coll)) if value]
    return document_of(names)


def _key_of(entry: bytes, at: int, end: int) -> bytes:
    """`{_id: value}` of a document; the server puts `_id` first."""
    for name, _, value_at, value_end in elements(entry, at):
        if name == b"_id":
            return document_of([entry[value_at - 5 : value_end]])
    raise MalformedEntry(f"a document without _id was inserted, of {end - at} bytes")


def walk(entry: bytes) -> Header:
    """The last element of a name counts: an operation of `applyOps` may contain its own time."""
    found = {name: (at, end) for name, _, at, end in elements(entry)}

    def raw(name: bytes) -> bytes:
        at, end = found.get(name, (0, 0))
        return entry[at:end]

    op, time = raw(b"op")[4:-1], raw(b"ts")
    if not op or not time:
        raise MalformedEntry(f"an entry of the oplog without op or ts: fields {sorted(found)}")
    kind = _TYPES.get(op) or _OTHERS.get(op) or UNKNOWN + op
    o_at, o_end = found.get(b"o", (0, 0))
    key, whole, update = raw(b"o2"), (0, 0), (0, 0)
    match kind:
        case b"insert":
            key, whole = key or _key_of(entry, o_at, o_end), (o_at, o_end)
        case b"update" if is_replacement(entry[o_at:o_end]):
            kind, whole = b"replace", (o_at, o_end)
        case b"update":
            update = (o_at, o_end)
        case b"delete":
            key = entry[o_at:o_end]
    token, index = _FIRST, raw(b"place")
    if index:
        token = index[4:-1] if len(index) > _DIGITS else place(int.from_bytes(index, "little")).encode()
    ns, uuid = _namespace(raw(b"ns")[4:-1]), raw(b"ui")[5:]
    return Header(kind, _UINT64(time, 0)[0], token, ns, key, uuid, *whole, *update, 0, 0, None)


scan = scanner(walk)


def made_entry(operation: bytes, ts: bytes, index: int, *, upserts: bool, about: bytes = b"") -> bytes:
    """An operation of `applyOps` as an entry. `ts` is raw. `upserts`: its updates insert missing documents. `about`: see `about_command`."""
    if b"\x11ts\0" in operation:
        body = b"".join(element for name, element in fields_of(operation).items() if name not in (b"ts", b"t"))
    else:
        body = operation[4:-1]
    rest = (_TS, ts, _PLACE, index.to_bytes(4, "little"), about, _UPSERTS if upserts else b"")
    return document_of([body, *rest])


def placed(entry: bytes, header: Header) -> bytes:
    """An entry of a shard with its place in the cluster's history. See `source/sharded/rows/row_places.py`."""
    size = (len(entry) + _SHARD_PLACE_SIZE).to_bytes(4, "little")
    return b"".join((size, entry[4:-1], _SHARD_PLACE, header.token, b"\0\0"))


def about_command(entry: bytes) -> bytes:
    """What each operation of a command entry has of it: its wall time, and the session and number of a transaction, in this order."""
    fields = fields_of(entry)
    wall, lsid, number = (fields.get(name, b"") for name in (b"wall", b"lsid", b"txnNumber"))
    retryable = fields.get(b"multiOpType", b"").endswith(_RETRYABLE_WRITES)
    return wall + lsid + number if wall and lsid and number and not retryable else wall


def about_of(entry: bytes, _: Header) -> RowAbout:
    """The wall time is behind the documents; in what was made of a transaction, its session and number follow.

    Before 4.4 entries begin with their time, and `o` is behind all else: `.. wall, lsid, txnNumber, .. o`. These are in no transaction.
    """
    if entry[4] == _TIME_FIRST:
        return RowAbout(next((milliseconds(entry, at) for name, _, at, _ in elements(entry) if name == b"wall"), None))
    at = entry.rfind(_WALL)
    if at < 0:
        return RowAbout()
    wall = _INT64(entry, at + _WALL_AT)[0]
    end = at + _WALL_END
    if not entry.startswith(_LSID, end):
        return _new(RowAbout, (wall, None))
    lsid_at = end + len(_LSID)
    lsid_end = lsid_at + _INT32(entry, lsid_at)[0]
    number_at = lsid_end + len(_NUMBER)
    return _new(RowAbout, (wall, transaction_of(entry[lsid_at:lsid_end], entry[number_at : number_at + 8])))


def update_of(entry: bytes, header: Header) -> bytes:
    """The `updateDescription` of an update."""
    described = description(entry[header.update_at : header.update_end])
    return upserting(described) if _upserts(entry, header.update_end) else described


def _upserts(entry: bytes, at: int) -> bool:
    if entry.endswith(_UPSERTS + b"\0") or entry.endswith(_UPSERTS, 0, -_SHARD_PLACE_SIZE - 1):
        return True
    return entry.find(_UPSERT, at) >= 0 and any(
        name == b"b" and entry[value_at] for name, _, value_at, _ in elements(entry)
    )


def place(index: int) -> str:
    if not 0 <= index <= _MOST_INDEX:
        raise ValueError(
            f"operation number {index} of one transaction: the highest number in a position is {_MOST_INDEX}"
        )
    return f"{index:08X}"


def position(ts: ClusterTime, index: int) -> Position:
    return Position(ts, place(index))


def index_of(at: Position) -> int:
    """The number of operations of its cluster time that are below the position, which may be between two of them (`owner/decision/recording.py`)."""
    operation, between, _ = at.token.partition(".")
    return int(operation.ljust(len(_FIRST), "0"), 16) + bool(between)
