"""Sync points on real servers: at each point the source at T and the target at C are the same, while money moves in transactions and the schema changes."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from devstack.mongodb.server import Client
from devstack.sharded.wire import CommandFailed, Wire
from tests.component.node.server_process import Server
from tests.until import until

pytestmark = [pytest.mark.costly("a node of its own, and writers beside it"), pytest.mark.since("5.0")]

_ACCOUNTS, _EACH = 200, 1_000
_EVER = Timestamp(1, 1)
_CALM = 0.05
"""Seconds between two transfers, where what is asked is not how many there can be."""


@dataclass
class Writers:
    """`changed_at`: the time of the newest DDL of each table, which is None while one is being done."""

    uri: str
    database: str
    pause: float
    changed_at: dict[str, Timestamp | None] = field(default_factory=dict)
    transfers: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _errors: list[Exception] = field(default_factory=list)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        threads = [
            threading.Thread(target=self._kept, args=(work,)) for work in (self._move_money, self._change_schema)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        assert not self._errors, self._errors

    def _kept(self, work: Any) -> None:
        try:
            with Client(self.uri, w="majority") as client:
                work(client)
        except Exception as error:  # noqa: BLE001 - the edge of the thread: the test raises it
            self._errors.append(error)

    def _move_money(self, client: Client) -> None:
        """By a plain connection, since a driver takes four times as much of the machine that it shares with Sluice; and a majority answers with the journal."""
        choice, address = random.Random(7), client.address
        assert address is not None
        session = {"lsid": {"id": Binary(uuid4().bytes, UUID_SUBTYPE)}, "autocommit": False}
        with Wire(address[1]) as wire:
            for number in count(1):
                if self._over.wait(self.pause):
                    return
                fields: dict[str, Any] = {**session, "txnNumber": Int64(number)}
                begin = {"startTransaction": True}
                with suppress(CommandFailed):  # the next number aborts it
                    for table, more in zip(choice.sample(["checking", "savings"], 2), (-1, 1), strict=True):
                        change = {"$inc": {"balance": more}, "$set": {"last": number}}
                        update = {"q": {"_id": choice.randrange(_ACCOUNTS)}, "u": change}
                        wire.command(self.database, {"update": table, "updates": [update], **fields, **begin})
                        begin = {}
                    wire.command("admin", {"commitTransaction": 1, **fields, "writeConcern": {"w": 1}})
                    self.transfers += 1

    def _change_schema(self, client: Client) -> None:
        database = client[self.database]
        for number in range(1_000_000):
            if self._over.wait(3):
                return
            name, after = f"made{number}", f"kept{number % 5}"
            self._do(client, [name], {"create": name})
            database[name].insert_many([{"_id": key, "number": number} for key in range(20)])
            self._do(client, [name], {"createIndexes": name, "indexes": [{"key": {"number": 1}, "name": "n"}]})
            self._do(client, [name], {"collMod": name, "validationLevel": "moderate"})
            names = f"{self.database}.{name}", f"{self.database}.{after}"
            self._do(client, [name, after], {"renameCollection": names[0], "to": names[1], "dropTarget": True})
            if number % 3 == 0:
                self._do(client, [after], {"drop": after})

    def _do(self, client: Client, names: list[str], command: dict[str, Any]) -> None:
        self.changed_at.update(dict.fromkeys(names))
        with client.start_session() as session:
            database = client.admin if "renameCollection" in command else client[self.database]
            database.command(command, session=session)
            self.changed_at.update(dict.fromkeys(names, session.operation_time))


def _rows(client: Client, database: str, table: str, at: Timestamp) -> list[bytes]:
    concern = {"level": "snapshot", "atClusterTime": at}
    find = {"find": table, "filter": {}, "sort": {"_id": 1}, "readConcern": concern, "batchSize": 10_000}
    reply = client.get_database(database).command(find, codec_options=_RAW)
    return [bytes(row.raw) for row in reply["cursor"]["firstBatch"]]


_RAW = Client("mongodb://nobody", connect=False).codec_options.with_options(document_class=RawBSONDocument)


def _compare(source: Client, target: Client, writers: Writers, point: dict[str, Any]) -> int:
    """Returns how many tables were equal. A table of which a DDL came later cannot be read there any more."""
    database, at, compared = writers.database, point["source"]["at"], 0
    excepted = {name for table in point["except"] for name in (*table["source"], *table["target"])}
    before = dict(writers.changed_at)
    for table, changed_at in sorted(before.items()):
        if changed_at is None or changed_at >= at or f"{database}.{table}" in excepted:
            continue
        try:
            there = _rows(target, database, table, point["target"]["at"])
            here = _rows(source, database, table, at)
        except OperationFailure as error:
            if error.code != 246:
                raise
            continue
        if writers.changed_at[table] == changed_at:
            assert there == here, f"{table} at {point}"
            compared += 1
    return compared


def _newest_with_accounts(points: Any, database: str, *, after: Timestamp = _EVER) -> str:
    """The time of a point that does not except the accounts: where much else runs, tables may come late to one. `after`: a time of the target."""
    accounts = [f"{database}.checking", f"{database}.savings"]

    def found() -> Any:
        wanted = {"feed": database, "done": True, "except.target": {"$nin": accounts}, "target.at": {"$gt": after}}
        return points.find_one(wanted, sort=[("_id", -1)])

    until(lambda: found() is not None, "a point with the accounts")
    return str(found()["source"]["at"].time)


@pytest.mark.parametrize(("wanted", "pause"), [(3, _CALM), pytest.param(30, 0.0, marks=pytest.mark.soak)])
def test_at_each_point_both_sides_are_the_same(  # noqa: PLR0915 - one life of a changefeed, told in order
    node: Server,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    tmp_path: Path,
    *,
    wanted: int,
    pause: float,
) -> None:
    def sluice(*arguments: str) -> str:
        answer = node.sluice(*arguments)
        assert answer.returncode == 0, f"{arguments}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    writers = Writers(source_uri, database, pause)
    for table in ("checking", "savings", "stopped"):
        source_client[database][table].insert_many([{"_id": key, "balance": _EACH} for key in range(_ACCOUNTS)])
        writers.changed_at[table] = _EVER
    points = target_client["sluice"]["sync_points"]
    file = tmp_path / "feed.yaml"
    tables = f"filter: {{tables: ['{database}.*']}}"
    file.write_text(
        f"id: {database}\nsource: {source_uri}\nsink: {target_uri}\n{tables}\nsync_points: {{every: 10s}}\n"
    )
    sluice("changefeed", "create", str(file))
    seen: set[str] = set()
    sums: list[int] = []
    compared = whole = killed_at = 0
    began_at = time.monotonic()
    with writers.at_work():
        until(lambda: points.find_one({"feed": database, "done": True}), "the first point")
        sluice("table", "stop", database, f"{database}.stopped")
        while len(sums) < wanted:
            if pause:
                node.sluice("changefeed", "sync-now", database)
            until(lambda: points.find_one({"feed": database, "done": True, "_id": {"$nin": list(seen)}}), "a point")
            for point in points.find({"feed": database, "done": True, "_id": {"$nin": list(seen)}}):
                seen.add(point["_id"])
                names = {name for table in point["except"] for name in table["target"]}
                whole += names <= {f"{database}.stopped"}
                compared += _compare(source_client, target_client, writers, point)
                if names.isdisjoint({f"{database}.checking", f"{database}.savings"}):
                    accounts = [
                        _rows(target_client, database, table, point["target"]["at"])
                        for table in ("checking", "savings")
                    ]
                    balances = [RawBSONDocument(row)["balance"] for rows in accounts for row in rows]
                    sums.append(sum(balances))
            if len(sums) % 10 == 2 and len(sums) > killed_at:
                killed_at = len(sums)
                node.kill()
                node.start()
                node.until_ready()
        at = _newest_with_accounts(points, database)
        verified = json.loads(sluice("verify", database, "--at", at, "-o", "json"))
        with target_client.start_session() as session:
            target_client[database]["savings"].insert_one({"_id": "by hand"}, session=session)
        assert session.operation_time is not None
        sluice("changefeed", "sync-now", database)
        at = _newest_with_accounts(points, database, after=session.operation_time)
        found = node.sluice("verify", database, "--at", at, "--tables", f"{database}.savings")
    outcomes = {table["name"]: table["outcome"] for table in verified["tables"]}
    assert outcomes[f"{database}.checking"] == outcomes[f"{database}.savings"] == "equal", verified
    assert outcomes[f"{database}.stopped"] == "not_comparable"
    assert found.returncode == 1, found.stdout
    assert "by hand" in found.stdout
    assert set(sums) == {2 * _ACCOUNTS * _EACH}
    newest = points.find_one({"feed": database, "done": True}, sort=[("_id", -1)])
    assert newest is not None
    assert [table["target"] for table in newest["except"] if "stopped" in table["why"]] == [[f"{database}.stopped"]]
    took = time.monotonic() - began_at
    print(  # noqa: T201 - the figures of a run
        f"{len(seen)} points in {took:.0f} s, {whole} whole but for the stopped table, {compared} tables compared, {len(sums)} sums, "
        f"{writers.transfers / took:.0f} transfers/s"
    )
    shown = json.loads(sluice("changefeed", "query", database, "-o", "json"))["sync_points"]
    listed = json.loads(sluice("changefeed", "sync-points", database, "--most", "1000", "-o", "json"))
    assert len(listed) > len(seen)
    assert shown["newest"]["source_ts"] in [each["source_ts"] for each in listed]
    sluice("changefeed", "remove", database, "--yes")
