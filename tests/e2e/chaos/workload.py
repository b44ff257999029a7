"""The writes at the source during a chaos run: rows of all kinds in tables whose schema changes, and unique values that move between rows.

Servers restart meanwhile. The effect of an interrupted write is unknown; that is harmless, because the end compares both sides.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from random import Random
from typing import Any, Self

from pymongo.errors import PyMongoError

from devstack.mongodb.server import Client
from tests.component.processor.workload import MixedOperations

_FEWEST, _MOST = 4, 12
_SEATS = 20
_BATCH_SECONDS = 0.7
_DDL_SECONDS = 2.0
_SEAT_SECONDS = 0.1


class Repeated:
    """Repeats an action in its own thread, and counts the server's refusals and aborts."""

    def __init__(self, name: str, work: Callable[[], str], seconds: float) -> None:
        self._work = work
        self._seconds = seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.done = Counter[str]()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                self.done[self._work()] += 1
            except PyMongoError as error:
                self.done[type(error).__name__] += 1


class Workload:
    """Writes to three databases whose names have a common prefix."""

    def __init__(self, client: Client, seed: int, *, name: str = "chaos") -> None:
        self._client = client
        self._db, self._side_db, self._seats_db = (client[f"{name}{part}"] for part in ("", "_side", "_seats"))
        self._random = {part: Random(f"{seed} {part}") for part in ("rows", "ddl", "seats")}
        self._rows = MixedOperations(seed)
        self._names = 0
        self._running = ExitStack()
        self.parts = [
            Repeated("rows", self._write, _BATCH_SECONDS),
            Repeated("ddl", self._change_schema, _DDL_SECONDS),
            Repeated("seats", self._change_seats, _SEAT_SECONDS),
        ]

    @property
    def databases(self) -> tuple[str, ...]:
        return self._db.name, self._side_db.name, self._seats_db.name

    def prepare(self) -> None:
        for _ in range(_FEWEST * 2):
            self._db[self._new_name()].bulk_write(self._rows.batch())
        seats = self._seats_db["seats"]
        seats.create_index("seat", unique=True, sparse=True)
        seats.insert_many([{"_id": n, "seat": n} if n < _SEATS else {"_id": n} for n in range(2 * _SEATS)])

    def __enter__(self) -> Self:
        for part in self.parts:
            self._running.enter_context(part)
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def summary(self) -> str:
        return ", ".join(f"{count} {what}" for part in self.parts for what, count in sorted(part.done.items()))

    def _new_name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _write(self) -> str:
        self._db[self._random["rows"].choice(self._tables())].bulk_write(self._rows.batch())
        return "batches of rows"

    def _tables(self) -> list[str]:
        """The current tables, read from the server because an interrupted DDL may or may not have taken effect. Never empty."""
        return sorted(self._db.list_collection_names()) or ["t0"]

    def _change_seats(self) -> str:
        """One document gives up its unique value, and another takes it."""
        seats, random = self._seats_db["seats"], self._random["seats"]
        has = random.choice(list(seats.find({"seat": {"$exists": True}})))
        wants = random.choice(list(seats.find({"seat": {"$exists": False}})))
        seats.update_one({"_id": has["_id"]}, {"$unset": {"seat": ""}})
        seats.update_one({"_id": wants["_id"]}, {"$set": {"seat": has["seat"]}})
        return "seats"

    def _change_schema(self) -> str:
        random, tables = self._random["ddl"], self._tables()
        kinds: list[Callable[[Random, str], str]] = [
            self._index,
            self._drop_index,
            self._modify,
            self._rename,
            self._side,
        ]
        kinds += [self._create, self._create] if len(tables) < _MOST else []
        kinds += [self._drop, self._again, self._replace] if len(tables) > _FEWEST else []
        return random.choice(kinds)(random, random.choice(tables))

    def _create(self, random: Random, _: str) -> str:
        options: dict[str, Any] = random.choice([{}, {"validator": {"never": {"$exists": False}}}])
        self._db.create_collection(self._new_name(), **options)
        return "create"

    def _index(self, random: Random, table: str) -> str:
        self._db[table].create_index(random.choice(["a", "c", "replaced"]))
        return "createIndexes"

    def _drop_index(self, random: Random, table: str) -> str:
        names = sorted(name for name in self._db[table].index_information() if name != "_id_")
        if names:
            self._db[table].drop_index(random.choice(names))
        return "dropIndexes"

    def _modify(self, random: Random, table: str) -> str:
        self._db.command("collMod", table, validator={"never": {"$ne": random.randrange(1000)}})
        return "collMod"

    def _rename(self, random: Random, table: str) -> str:
        self._db[table].rename(self._new_name())
        return "rename"

    def _replace(self, random: Random, table: str) -> str:
        other = random.choice([name for name in self._tables() if name != table])
        self._db[table].rename(other, dropTarget=True)
        return "rename dropTarget"

    def _drop(self, random: Random, table: str) -> str:
        self._db.drop_collection(table)
        return "drop"

    def _again(self, random: Random, table: str) -> str:
        self._db.drop_collection(table)
        self._db[table].insert_many([{"_id": n, "again": True} for n in range(10)])
        return "drop, re-create"

    def _side(self, random: Random, _: str) -> str:
        """A second database that is created and dropped in turn."""
        side = self._side_db
        if side.list_collection_names():
            self._client.drop_database(side)
            return "dropDatabase"
        for name in ("a", "b"):
            side[name].insert_many([{"_id": n} for n in range(20)])
        return "two tables"
