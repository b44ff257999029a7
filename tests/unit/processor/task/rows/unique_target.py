"""`UniqueTarget`: one in-memory collection with a unique index, with the part of a driver's client that the row writer needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Self

import bson
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from tests.unit.sink.mongodb.rows import update_model

Row = dict[str, Any]


class UniqueTarget:
    def __init__(self, rows: Mapping[Any, Row]) -> None:
        self.rows = {key: {"_id": key, **row} for key, row in rows.items()}

    def __getitem__(self, _: str) -> Self:
        return self

    def start_session(self) -> AbstractContextManager[Self]:
        return nullcontext(self)

    @contextmanager
    def start_transaction(self, **_: object) -> Iterator[None]:
        before = dict(self.rows)
        try:
            yield
        except OperationFailure:
            self.rows = before
            raise

    def command(self, command: Mapping[str, Any], **_: object) -> dict[str, Any]:
        if "hello" in command:
            return {"maxWireVersion": 25, "maxWriteBatchSize": 100_000, "maxBsonObjectSize": 16 << 20}
        verb = next(iter(command))
        if verb == "find":
            return {"cursor": {"firstBatch": list(self._found(**bson.decode(bson.encode(command["filter"]))))}}
        if verb == "aggregate":
            return {"cursor": {"firstBatch": list(self._aggregated(*command["pipeline"]))}}
        statements = command[
            {"bulkWrite": "ops", "insert": "documents", "update": "updates", "delete": "deletes"}[verb]
        ]
        results: list[dict[str, Any]] = []
        for number, statement in enumerate(statements):
            results.append({"idx": number, "index": number, **self._one(verb, bson.decode(bson.encode(statement)))})
            if not results[-1]["ok"] and command.get("ordered", True):
                break
        if verb == "bulkWrite":
            return {"ok": 1.0, "cursor": {"id": Int64(0), "ns": "admin.$cmd", "firstBatch": results}}
        errors = [result for result in results if not result["ok"]]
        reply: dict[str, Any] = {"ok": 1.0, "n": sum(result["n"] for result in results)}
        return reply | ({"writeErrors": errors} if errors else {})

    def _aggregated(self, source: Mapping[str, Any], *stages: dict[str, Any]) -> Iterator[Row]:
        keys = [source["$match"]["_id"]] if "$match" in source else list(self.rows)[:1]
        for key in keys:
            if key in self.rows:
                yield update_model.apply(self.rows[key], list(stages))

    def _found(self, _id: Any, **conditions: Any) -> Iterator[RawBSONDocument]:
        for key in _id["$in"] if isinstance(_id, dict) else [_id]:
            if key in self.rows and update_model.fits(self.rows[key], conditions.get("$expr")):
                yield RawBSONDocument(bson.encode(self.rows[key]))

    def _one(self, verb: str, statement: Row) -> dict[str, Any]:
        if verb == "insert" or "insert" in statement:
            return self._put(statement.get("document", statement), new=True)
        statement = {"q": statement.get("filter"), "u": statement.get("updateMods"), **statement}
        key = statement["q"]["_id"]
        if verb == "delete" or "delete" in statement:
            keys = key["$in"] if isinstance(key, dict) and "$in" in key else [key]
            return {"ok": 1.0, "n": sum(self.rows.pop(each, None) is not None for each in keys)}
        before = self.rows.get(key)
        misses = before is not None and not update_model.fits(before, statement["q"].get("$expr"))
        if misses or (before is None and not statement.get("upsert")):
            return {"ok": 1.0, "n": 0}
        change: Any = statement["u"]
        if isinstance(change, list) or any(name.startswith("$") for name in change):
            return self._updated(before or {"_id": key}, change)
        return self._put({"_id": key, **change})

    def _updated(self, row: Row, change: Any) -> dict[str, Any]:
        try:
            return self._put(update_model.apply(row, change))
        except update_model.Refused as refused:
            return {"ok": 0.0, "n": 0, "code": 28, "errmsg": str(refused)}

    def _put(self, row: Row, *, new: bool = False) -> dict[str, Any]:
        if new and row["_id"] in self.rows:
            return _duplicate("_id")
        for key, other in self.rows.items():
            if key != row["_id"] and "u" in row and other.get("u") == row["u"]:
                return _duplicate("u")
        self.rows[row["_id"]] = row
        return {"ok": 1.0, "n": 1}


def _duplicate(field: str) -> dict[str, Any]:
    return {"ok": 0.0, "n": 0, "code": 11000, "errmsg": f"E11000 duplicate key: {field}", "keyPattern": {field: 1}}
