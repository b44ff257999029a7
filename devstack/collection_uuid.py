"""`collectionUUID` and a UUID as `dropTarget`, as MongoDB 6.0 and later check them.

SecantusDB refuses the field in collMod and ignores it elsewhere. A test of a guard that is never looked at proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bson.binary import Binary
from secantus import commands

_GUARDED = ("collMod", "createIndexes", "dropIndexes", "drop", "renameCollection", "find", "insert", "update", "delete")

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def install() -> None:
    for name in _GUARDED:
        commands._HANDLERS[name] = _guarded(name, commands._HANDLERS[name])  # noqa: SLF001 - there is no other seam


def _guarded(name: str, handler: Handler) -> Handler:
    def handle(command: dict[str, Any], context: Any) -> dict[str, Any]:
        rest = dict(command)
        expected = rest.pop("collectionUUID", None)
        if expected is not None:
            mismatch = _mismatch(_namespace(name, command[name], context), bytes(expected), context)
            if mismatch:
                return mismatch
        replaced = rest.get("dropTarget")
        if isinstance(replaced, (Binary, bytes)):
            mismatch = _mismatch(tuple(str(command["to"]).split(".", 1)), bytes(replaced), context)
            if mismatch:
                return mismatch
            rest["dropTarget"] = True
        return handler(rest, context)

    return handle


def _namespace(command: str, subject: str, context: Any) -> tuple[str, ...]:
    return tuple(subject.split(".", 1)) if command == "renameCollection" else (context.db_name, subject)


def _mismatch(namespace: tuple[str, ...], expected: bytes, context: Any) -> dict[str, Any] | None:
    db, coll = namespace
    storage = context.storage
    exists = storage._coll_options(db, coll) is not None  # noqa: SLF001 - there is no other seam
    if exists and storage._collection_uuid(db, coll).bytes == expected:  # noqa: SLF001 - the same
        return None
    return {
        "ok": 0.0,
        "errmsg": "Collection UUID does not match that specified",
        "code": 361,
        "codeName": "CollectionUUIDMismatch",
        "db": db,
        "collectionUUID": Binary(expected, 4),
        "expectedCollection": coll,
        "actualCollection": None,
    }
