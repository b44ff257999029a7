"""`Entry`, `Shown`: what a primary writes to its oplog, and the events that a change stream shows for it.

Entries have the shape of server 6.0.5, and of 8.0 where it groups inserts. An event is derived from the operation in its entry, so both
captures show the same history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import bson
from bson.binary import Binary
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from tests.simulation.source.row_diff import described

Document = Mapping[str, Any]

NOTHING_BEFORE: Document = {"ts": Timestamp(0, 0), "t": -1}
MULTI_OP = 1
"""The `multiOpType` of inserts that share one entry. Earlier entries of their session do not belong to them."""
_SESSION = Binary(bytes.fromhex("c3afb3") + b"\0" * 13, 4)
_USER = Binary(b"\xe3" * 32, 0)
_IN_TRANSACTIONS = ("create", "createIndexes")
_DIGITS_OF_A_SHARD = 24


@dataclass(frozen=True)
class Operation:
    op: str
    ns: str
    o: Document
    o2: Document | None = None
    ui: bytes | None = None
    from_migrate: bool = False
    before: Document | None = None
    after: Document | None = None
    """The images of a row, which no entry contains."""

    @property
    def command(self) -> str:
        return next(iter(self.o)) if self.op == "c" else ""

    @property
    def may_be_in_a_transaction(self) -> bool:
        return not self.from_migrate and (self.op in "iud" or self.command in _IN_TRANSACTIONS)

    def body(self) -> dict[str, Any]:
        return {
            "op": self.op,
            "ns": self.ns,
            **({"ui": Binary(self.ui, 4)} if self.ui else {}),
            "o": self.o,
            **({"o2": self.o2} if self.o2 is not None else {}),
            **({"fromMigrate": True} if self.from_migrate else {}),
        }


@dataclass(frozen=True)
class Shown:
    """An event of a change stream."""

    position: Position
    token: str
    raw: bytes
    header: Mapping[str, str | None]
    """The fields that a `$match` reads."""
    before: Document | None
    after: Document | None

    def with_images(self) -> bytes:
        event: dict[str, Any] = bson.decode(self.raw)
        if self.after is not None:
            event["fullDocument"] = self.after
        if self.before is not None:
            event["fullDocumentBeforeChange"] = self.before
        return bson.encode(event)


@dataclass(frozen=True)
class Entry:
    ts: ClusterTime
    term: int
    document: Document
    raw: bytes
    shown: Sequence[Shown] = ()

    @property
    def partial(self) -> bool:
        """Whether it is a part of a transaction that a later entry ends."""
        return bool(self.document["o"].get("partialTxn"))


def entry(ts: ClusterTime, term: int, head: Document, body: Document, *, shown: Sequence[Shown] = ()) -> Entry:
    wall = datetime.fromtimestamp(ts.seconds, UTC)
    previous = {"prevOpTime": head["prevOpTime"]} if "prevOpTime" in head else {}
    named = {name: value for name, value in head.items() if name != "prevOpTime"}
    document = {**named, **body, "ts": ts.to_bson(), "t": term, "v": 2, "wall": wall, **previous}
    return Entry(ts, term, document, bson.encode(document), shown)


def note(ts: ClusterTime, term: int, message: str) -> Entry:
    return entry(ts, term, {}, {"op": "n", "ns": "", "o": {"msg": message}})


def optime(of: Entry | None) -> Document:
    return {"ts": of.ts.to_bson(), "t": of.term} if of is not None else NOTHING_BEFORE


def place(ts: ClusterTime, index: int) -> Position:
    """The position of an operation: its time, and its number in its entry or transaction."""
    return Position(ts, f"{index:08X}")


def shard_place(ts: ClusterTime, index: int) -> Position:
    """Of a row of a cluster: behind all DDL of its time. The place that the product gives it depends on its shard."""
    return Position(ts, f"01{index:022X}")


def single(ts: ClusterTime, term: int, operation: Operation, session: Document) -> Entry:
    return entry(ts, term, session, operation.body(), shown=_shown([operation], ts))


@dataclass
class Group:
    """Operations of one cluster time: a transaction, in one entry or a chain of entries, or inserts that share an entry."""

    parts: Sequence[ClusterTime]
    """The times of the entries. All operations have the last one."""
    in_session: bool = True
    inserts_of: Entry | None = None
    inserts: bool = False
    operations: list[Operation] = field(default_factory=list)

    @property
    def ts(self) -> ClusterTime:
        return self.parts[-1]

    def entries(self, term: int, number: int) -> list[Entry]:
        parts = self.parts[-min(len(self.parts), len(self.operations)) :]
        session = session_of(number) if self.in_session else {}
        if self.inserts:
            head = {**session, "multiOpType": MULTI_OP, "prevOpTime": optime(self.inserts_of)}
            return [self._entry(self.ts, term, head, self.operations, {}, _shown(self.operations, self.ts))]
        made: list[Entry] = []
        for index, ts in enumerate(parts):
            each = self.operations[
                len(self.operations) * index // len(parts) : len(self.operations) * (index + 1) // len(parts)
            ]
            chained = {"prevOpTime": optime(made[-1] if made else None)} if session or len(parts) > 1 else {}
            last = index == len(parts) - 1
            more = {"partialTxn": True} if not last else {"count": len(self.operations)} if len(parts) > 1 else {}
            shown = _shown(self.operations, self.ts) if last else ()
            made.append(self._entry(ts, term, {**session, **chained}, each, more, shown))
        return made

    @staticmethod
    def _entry(
        ts: ClusterTime,
        term: int,
        head: Document,
        operations: Iterable[Operation],
        more: Document,
        shown: Sequence[Shown],
    ) -> Entry:
        applied = {"applyOps": [operation.body() for operation in operations], **more}
        return entry(ts, term, head, {"op": "c", "ns": "admin.$cmd", "o": applied}, shown=shown)


def session_of(number: int) -> dict[str, Any]:
    return {"lsid": {"id": _SESSION, "uid": _USER}, "txnNumber": bson.Int64(number)}


# change streams


def stream_token(position: Position, ui: bytes | None) -> str:
    index = int(position.token, 16)
    number = "29" if index == 0 else f"2B{2 * index:02X}"
    whose = f"5A1004{ui.hex().upper()}" if ui else "14"
    return f"82{position.ts.to_int():016X}2B042C0100{number}6E{whose}04"


def placed(position: Position) -> Position:
    """Translates a position of any capture to the form of this model. Of a row of a cluster, its time alone is known."""
    token = position.token.upper()
    if len(token.partition(".")[0]) == _DIGITS_OF_A_SHARD:
        return position if token.startswith("00") else shard_place(position.ts, 0)
    if len(token) <= 8:
        return Position(position.ts, token)
    if token[22:26] != "2C01":
        return Position(position.ts)
    return place(position.ts, 0 if token[28:30] == "29" else int(token[30:32], 16) // 2)


def _shown(operations: Sequence[Operation], ts: ClusterTime) -> list[Shown]:
    events = (_event(operation, place(ts, index)) for index, operation in enumerate(operations))
    return [event for event in events if event is not None]


def _event(operation: Operation, position: Position) -> Shown | None:
    told = _told(operation)
    if told is None or operation.from_migrate:
        return None
    kind, coll, fields = told
    token = stream_token(position, operation.ui)
    full = {"fullDocument": fields.pop("fullDocument")} if "fullDocument" in fields else {}
    db = operation.ns.partition(".")[0]
    event = {
        "_id": {"_data": token},
        "operationType": kind,
        "clusterTime": position.ts.to_bson(),
        **({"collectionUUID": Binary(operation.ui, 4)} if operation.ui else {}),
        "wallTime": datetime.fromtimestamp(position.ts.seconds, UTC),
        **full,
        "ns": {"db": db, "coll": coll} if coll else {"db": db},
        **fields,
    }
    header = {"operationType": kind, "ns.db": db, "ns.coll": coll}
    return Shown(position, token, bson.encode(event), header, operation.before, operation.after)


def _told(operation: Operation) -> tuple[str, str | None, dict[str, Any]] | None:
    """Type, collection and further fields."""
    o, o2 = operation.o, operation.o2 or {}
    coll = operation.ns.partition(".")[2]
    told: tuple[str, str | None, dict[str, Any]] | None = None
    match operation.op, operation.command:
        case "i", _:
            told = "insert", coll, {"fullDocument": o, "documentKey": o2}
        case "u", _ if "_id" in o:
            told = "replace", coll, {"fullDocument": o, "documentKey": o2}
        case "u", _:
            told = "update", coll, {"documentKey": o2, "updateDescription": described(o["diff"])}
        case "d", _:
            told = "delete", coll, {"documentKey": o}
        case _, "renameCollection":
            told = _renamed(o)
        case _, "dropDatabase":
            told = "dropDatabase", None, {}
        case _, command if command in _COMMANDS:
            kind, describe = _COMMANDS[command]
            told = kind, o[command], describe(_without(o, command), o2)
    return told


def _renamed(o: Document) -> tuple[str, str, dict[str, Any]]:
    db, _, coll = o["to"].partition(".")
    to = {"db": db, "coll": coll}
    described = {"to": to, **({"dropTarget": o["dropTarget"]} if "dropTarget" in o else {})}
    return "rename", o["renameCollection"].partition(".")[2], {"to": to, "operationDescription": described}


def _without(o: Document, *names: str) -> dict[str, Any]:
    return {name: value for name, value in o.items() if name not in names}


_COMMANDS: Mapping[str, tuple[str, Any]] = {
    "create": ("create", lambda o, o2: {"operationDescription": o}),
    "createIndexes": ("createIndexes", lambda o, o2: {"operationDescription": {"indexes": [o]}}),
    "commitIndexBuild": ("createIndexes", lambda o, o2: {"operationDescription": {"indexes": o["indexes"]}}),
    "dropIndexes": ("dropIndexes", lambda o, o2: {"operationDescription": {"indexes": [o2]}}),
    "collMod": (
        "modify",
        lambda o, o2: {
            "operationDescription": o,
            "stateBeforeChange": {"collectionOptions": _without(o2["collectionOptions_old"], "uuid")},
        },
    ),
    "drop": ("drop", lambda o, o2: {}),
}
