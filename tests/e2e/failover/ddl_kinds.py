"""The kinds of DDL in the matrix: their prerequisites, their statements, and their expected commands at the target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.database import Database as _Database

from devstack.mongodb.server import Client

Database = _Database[dict[str, Any]]

_INDEX_BUILT = ("createIndexes", "commitIndexBuild")
"""The entry of an empty collection, and of a collection with rows."""
_INDEX_NOT_BUILT = ("startIndexBuild", "abortIndexBuild")
"""A build that began or was aborted has no effect: no query uses its index."""


@dataclass(frozen=True)
class Kind:
    """Tables in `before` are created first; those in `after` exist when the DDL is done."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    ddl: Callable[[Database], object]
    commands: Mapping[str, int]
    """How often each command has an effect at the target, including the creation of the tables in `before`."""
    shown: int = 1
    """The number of its DDLs at the source."""
    stand: int = 1
    """The number of its first DDLs that are at the moment of the accident; the others wait for them."""
    harmless_twice: str = ""
    """A command that may set the same value twice: an owner repeats it if its predecessor died before it recorded the command."""


def _again(db: Database) -> None:
    db.drop_collection("t")
    db.create_collection("t", capped=True, size=1 << 20)


KINDS: dict[str, Kind] = {
    "create": Kind(
        before=(),
        after=("t",),
        ddl=lambda db: db.create_collection("t", validator={"total": {"$gte": 0}}),
        commands={"create": 1},
    ),
    "createIndexes unique": Kind(
        before=("t",),
        after=("t",),
        ddl=lambda db: db["t"].create_index("code", unique=True),
        commands={"create": 1, "createIndexes": 1},
    ),
    "collMod": Kind(
        before=("t",),
        after=("t",),
        ddl=lambda db: db.command("collMod", "t", validator={"total": {"$gte": 0}}),
        commands={"create": 1, "collMod": 1},
        harmless_twice="collMod",
    ),
    "rename dropTarget": Kind(
        before=("t", "old"),
        after=("old",),
        ddl=lambda db: db["t"].rename("old", dropTarget=True),
        commands={"create": 2, "renameCollection": 1},
    ),
    "drop": Kind(
        before=("t",),
        after=(),
        ddl=lambda db: db.drop_collection("t"),
        commands={"create": 1, "drop": 1},
    ),
    "drop, re-create": Kind(
        before=("t",),
        after=("t",),
        ddl=_again,
        shown=2,
        commands={"create": 2, "drop": 1},
    ),
    "dropDatabase": Kind(
        before=("t", "u"),
        after=(),
        ddl=lambda db: db.client.drop_database(db.name),
        shown=2,
        stand=2,
        commands={"create": 2, "drop": 2},
    ),
}


def commands_had(client: Client, database: str) -> dict[str, int]:
    """How often each command had an effect in a database, by its server's oplog."""
    entries: Any = client["local"]["oplog.rs"]
    found = Counter(
        next(iter(entry["o"])) for entry in entries.find({"op": "c", "ns": {"$regex": f"^{database}\\."}}, {"o": 1})
    )
    built = sum(found[name] for name in _INDEX_BUILT)
    effects = {name: count for name, count in found.items() if name not in (*_INDEX_BUILT, *_INDEX_NOT_BUILT)}
    return {**effects, "createIndexes": built} if built else effects
