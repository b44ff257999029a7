"""The sequence that the product's readers show of a history: of the model of a sharded cluster, and of a real one."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any, TypeVar
from unittest.mock import patch

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.event import SHARDING, DdlEvent, DdlType
from changefeed.position import Position, Window
from changefeed.sharded_history import ShardedHistory, opened
from devstack.sharded.cluster import ShardedCluster
from source.oplog.row_entry import ROWS, update_of
from source.sharded.cluster_clients import CONFIG, ClusterClients, reach_newest
from source.sharded.rows.sharded_rows import sharded_rows
from source.sharded.sharded_ddl_watch import ShardedDdlWatch
from source.stream.change_event import table_name
from source.stream.window_reader import ReadOptions
from tests.component.simulation.cluster_lives import ClusterLife, ModelClusterLife, RealClusterLife
from tests.component.simulation.conftest import AGAINST_REAL, MODEL
from tests.component.simulation.served import InTheMachine, InThisProcess, Served
from tests.simulation.clockwork.machine import Machine
from tests.simulation.clockwork.network import Network
from tests.simulation.source.sharded.client import ShardClient

T = TypeVar("T")
Shown = tuple[str, ...]
"""A DDL, or a row and its `_id`, with what it says."""


class Lived:
    """`life`: what users do. `shown`: what they are told to have done, from `begin` on."""

    def __init__(self, served: Served, clients: ClusterClients, database: str, life: ClusterLife) -> None:
        self.life = life
        self._served, self._clients, self._database = served, clients, database
        self.keys: list[str] = []
        """How tables were sharded, in what was read last."""
        self.begin()

    def begin(self) -> None:
        self._start = Position(self._call(lambda: reach_newest(self._clients)).next())

    def shown(self) -> list[Shown]:
        """Each effective time's DDL, then its rows. Tables are named as they were created."""
        return self._call(self._read)

    def _call(self, call: Callable[[], T]) -> T:
        return self._served.begin(call).result()

    def _read(self) -> list[Shown]:
        events, history = self._follow()
        said_keys = [event for event in events if event.type in SHARDING]
        self.keys = [f"{event.type} {event.description.decode()['shardKey']}" for event in said_keys]
        events = [event for event in events if event not in said_keys]
        ids, names = dict[Any, Any](), dict[Any, str]()
        said: list[tuple[ClusterTime, bool, Shown]] = []
        made = Counter[str]()
        for event in events:
            if event.type is DdlType.CREATE and event.table is not None:
                made[event.table.coll] += 1
                names[event.id] = event.table.coll + "'" * (made[event.table.coll] - 1)
            if event.type is DdlType.NEW_UUID:
                new = event.description.decode()["uuid"]
                ids[new], names[new] = ids.get(event.id, event.id), names[event.id]
            said.append((event.position.ts, True, self._told(event, names)))
        capture = sharded_rows(self._clients, ids, ReadOptions(patience=timedelta(seconds=5)))
        for batch in capture.reader(history).read(Window(self._start, Position(history.resolved_ts))):
            for entry, header in batch.scanned(capture.scan):
                name = table_name(header.ns) if header.type in ROWS else None
                if name is None or name.db != self._database or name.system:
                    continue
                key = bson.decode(header.key)["_id"]
                content: dict[str, Any] = {}
                if header.type == b"update":
                    content = bson.decode(update_of(entry, header))["updatedFields"]
                elif header.type != b"delete":
                    content = bson.decode(entry[header.full_at : header.full_end])
                plain = {field: value for field, value in content.items() if field not in ("_id", "v")}
                row = header.type.decode(), names[header.uuid.hex()], str(key), *([str(plain)] if plain else [])
                said.append((ClusterTime.from_int(header.time), False, row))
        return [row for _, _, row in sorted(said, key=lambda each: (each[0], not each[1]))]

    def _follow(self) -> tuple[list[DdlEvent], ShardedHistory]:
        end_ts, events = reach_newest(self._clients), list[DdlEvent]()
        with closing(ShardedDdlWatch(self._clients, self._start)) as watch:
            while True:
                batch = watch.poll()
                assert batch.trouble is None
                events += [event for event in batch.events if event.db == self._database]
                if batch.resolved.ts > end_ts:
                    history = opened(batch.history)
                    assert history is not None
                    return events, history

    def _told(self, event: DdlEvent, names: dict[Any, str]) -> Shown:
        of = [names[event.id]] if event.id in names else []
        if event.renamed_to is not None:
            of.append(f"to {event.renamed_to.coll}")
        if event.drop_target is not None:
            of.append(f"over {names[event.drop_target]}")
        said = event.description.decode()
        of += [index["name"] for index in said.get("indexes", ())]
        of += [said[option] for option in ("validationLevel",) if option in said]
        return str(event.type), *of


@pytest.fixture(params=[MODEL, AGAINST_REAL])
def lived(request: pytest.FixtureRequest) -> Iterator[Lived]:
    if request.param == MODEL:
        machine: Machine = request.getfixturevalue("machine")
        life = ModelClusterLife(machine, "contract")
        network = Network(machine)

        def connected(uri: str, **_: object) -> ShardClient:
            return ShardClient(life.cluster, uri.partition("replicaSet=")[2] or CONFIG, network)

        with patch("source.sharded.cluster_clients.connect", connected):
            yield Lived(InTheMachine(machine), ClusterClients("mongodb://config"), "contract", life)
        return
    cluster: ShardedCluster = request.getfixturevalue("cluster")
    database = f"contract_{uuid.uuid4().hex[:12]}"
    with cluster.router() as router, closing(ClusterClients(cluster.config.uri)) as clients:
        yield Lived(InThisProcess(), clients, database, RealClusterLife(router, clients, database))


def inserted(coll: str, *ids: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Of the lower chunk, and with an odd `_id` of the upper one, if it is sharded by `f`."""
    return [("insert", coll, {"_id": id, "f": 60 * (id % 2)}) for id in ids]


def test_a_chunk_moves_between_two_writes_of_its_rows(lived: Lived) -> None:
    lived.life.shard("a", "f")
    lived.life.write(*inserted("a", 0, 1))
    lived.life.move("a", 60)
    lived.life.write(("update", "a", {"_id": 1, "u": 1}), ("delete", "a", {"_id": 0}), *inserted("a", 3))
    lived.life.move("a", 60)
    lived.life.write(("delete", "a", {"_id": 1}))
    assert lived.shown() == [
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("update", "a", "1", "{'u': 1}"),
        ("delete", "a", "0"),
        ("insert", "a", "3", "{'f': 60}"),
        ("delete", "a", "1"),
    ]


def test_the_primary_shard_moves(lived: Lived) -> None:
    lived.life.write(*inserted("plain", 0))
    lived.life.shard("a", "f")
    lived.life.write(*inserted("a", 0, 1))
    lived.life.create_index("plain", "u")
    lived.life.move_primary()
    lived.life.write(("update", "plain", {"_id": 0, "u": 1}), ("update", "a", {"_id": 1, "u": 1}))
    lived.life.move_primary()
    lived.life.drop_index("plain", "u")
    lived.life.write(("delete", "plain", {"_id": 0}))
    assert lived.shown() == [
        ("create", "plain"),
        ("insert", "plain", "0", "{'f': 0}"),
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("createIndexes", "plain", "u_1"),
        ("newUuid", "plain"),
        ("update", "plain", "0", "{'u': 1}"),
        ("update", "a", "1", "{'u': 1}"),
        ("newUuid", "plain"),
        ("dropIndexes", "plain", "u_1"),
        ("delete", "plain", "0"),
    ]


def test_a_table_is_resharded(lived: Lived) -> None:
    lived.life.shard("a", "_id")
    lived.life.write(*inserted("a", 0, 5))
    lived.life.move("a", 5)
    lived.life.create_index("a", "u")
    lived.life.reshard("a", "f")
    lived.life.write(("update", "a", {"_id": 5, "u": 1}), *inserted("a", 1))
    lived.life.drop_index("a", "u")
    lived.life.drop("a")
    assert lived.shown() == [
        ("create", "a"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "5", "{'f': 60}"),
        ("createIndexes", "a", "u_1"),
        ("newUuid", "a"),
        ("createIndexes", "a", "f_1"),
        ("update", "a", "5", "{'u': 1}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("dropIndexes", "a", "u_1"),
        ("drop", "a"),
    ]
    assert lived.keys == ["shardCollection {'_id': 1}", "reshardCollection {'f': 1}"]


def test_tables_are_renamed_alone_and_over_another(lived: Lived) -> None:
    for coll in ("a", "b"):
        lived.life.shard(coll, "f")
        lived.life.move(coll, 60)
        lived.life.write(*inserted(coll, 0, 1))
    lived.life.write(*inserted("plain", 0))
    lived.life.rename("plain", "other")
    lived.life.rename("a", "b", over=True)
    lived.life.write(("update", "b", {"_id": 1, "u": 1}), ("delete", "other", {"_id": 0}))
    lived.life.rename("b", "a")
    lived.life.write(("delete", "a", {"_id": 0}))
    assert lived.shown() == [
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("create", "b"),
        ("createIndexes", "b", "f_1"),
        ("insert", "b", "0", "{'f': 0}"),
        ("insert", "b", "1", "{'f': 60}"),
        ("create", "plain"),
        ("insert", "plain", "0", "{'f': 0}"),
        ("rename", "plain", "to other"),
        ("rename", "a", "to b", "over b"),
        ("update", "a", "1", "{'u': 1}"),
        ("delete", "plain", "0"),
        ("rename", "a", "to a"),
        ("delete", "a", "0"),
    ]


def test_tables_are_dropped_and_created_again(lived: Lived) -> None:
    lived.life.shard("a", "f")
    lived.life.move("a", 60)
    lived.life.write(*inserted("a", 0, 1), *inserted("plain", 0))
    lived.life.drop("a")
    lived.life.drop("plain")
    lived.life.write(*inserted("a", 0, 1))
    lived.life.shard("plain", "f")
    lived.life.move("plain", 60)
    lived.life.write(*inserted("plain", 0, 1))
    lived.life.shard("a", "_id")
    lived.life.write(("delete", "a", {"_id": 1}))
    lived.life.drop_database()
    shown = lived.shown()
    assert shown[:-3] == [
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("create", "plain"),
        ("insert", "plain", "0", "{'f': 0}"),
        ("drop", "a"),
        ("drop", "plain"),
        ("create", "a'"),
        ("insert", "a'", "0", "{'f': 0}"),
        ("insert", "a'", "1", "{'f': 60}"),
        ("create", "plain'"),
        ("createIndexes", "plain'", "f_1"),
        ("insert", "plain'", "0", "{'f': 0}"),
        ("insert", "plain'", "1", "{'f': 60}"),
        ("delete", "a'", "1"),
    ]
    assert sorted(shown[-3:-1]) == [("drop", "a'"), ("drop", "plain'")]
    assert shown[-1] == ("dropDatabase",)


def test_options_and_indexes_change_at_all_owners(lived: Lived) -> None:
    lived.life.shard("a", "f")
    lived.life.move("a", 60)
    lived.life.write(*inserted("a", 0, 1), *inserted("plain", 0))
    lived.life.modify("a", "moderate")
    lived.life.modify("plain", "off")
    lived.life.create_index("a", "u")
    lived.life.write(*inserted("a", 2))
    lived.life.move("a", 60)
    lived.life.drop_index("a", "u")
    lived.life.modify("a", "strict")
    assert lived.shown() == [
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("create", "plain"),
        ("insert", "plain", "0", "{'f': 0}"),
        ("modify", "a", "moderate"),
        ("modify", "plain", "off"),
        ("createIndexes", "a", "u_1"),
        ("insert", "a", "2", "{'f': 0}"),
        ("dropIndexes", "a", "u_1"),
        ("modify", "a", "strict"),
    ]


def test_transactions_across_shards_take_effect_at_one_time(lived: Lived) -> None:
    lived.life.shard("a", "f")
    lived.life.move("a", 60)
    lived.life.write(*inserted("a", 0, 1, 2))
    lived.life.transaction(("update", "a", {"_id": 0, "u": 1}), ("update", "a", {"_id": 1, "u": 1}), *inserted("a", 3))
    lived.life.transaction(("delete", "a", {"_id": 0}), ("delete", "a", {"_id": 1}), commits=False)
    lived.life.write(("update", "a", {"_id": 2, "f": 70}))
    lived.life.write(("update", "a", {"_id": 2, "u": 2}), ("update", "a", {"_id": 2, "f": 10}))
    lived.life.write(("delete", "a", {"_id": 2}))
    shown = lived.shown()
    assert sorted(shown[5:8]) == [
        ("insert", "a", "3", "{'f': 60}"),
        ("update", "a", "0", "{'u': 1}"),
        ("update", "a", "1", "{'u': 1}"),
    ]
    assert shown[5:8].index(("update", "a", "1", "{'u': 1}")) < shown[5:8].index(("insert", "a", "3", "{'f': 60}"))
    assert shown[:5] + shown[8:] == [
        ("create", "a"),
        ("createIndexes", "a", "f_1"),
        ("insert", "a", "0", "{'f': 0}"),
        ("insert", "a", "1", "{'f': 60}"),
        ("insert", "a", "2", "{'f': 0}"),
        ("delete", "a", "2"),
        ("insert", "a", "2", "{'f': 70}"),
        ("update", "a", "2", "{'u': 2}"),
        ("delete", "a", "2"),
        ("insert", "a", "2", "{'f': 10, 'u': 2}"),
        ("delete", "a", "2"),
    ]
