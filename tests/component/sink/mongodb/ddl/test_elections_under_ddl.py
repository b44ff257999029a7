"""An election between the observation of the target and the commands that depend on it, on a real set of three.

The primary has effects that no other member has, as after an owner that died before the majority had its DDL. The next owner observes them,
and then an election rolls them back. Meanwhile the test blocks the next owner in its permit, which it checks before each command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from changefeed.documents.document import EMPTY
from changefeed.documents.row_key import KeyRange
from changefeed.errors import SinkUnavailable
from changefeed.records.ddl import Observation
from changefeed.table import TableId, TableName
from devstack.mongodb.server import TESTING, Client
from devstack.process import wait_until
from sink.ddl import CreateTable, DownstreamDdl, DropTables, names_of
from sink.mongodb.connection import connect
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.row import TargetTable
from tests.conftest import ReplicaSets

_DEADLINE = 60.0
_CREATED, _DROPPED, _CLEARED, _EMPTIED = (TableName("shop", name) for name in ("new", "old", "cleared", "emptied"))


@dataclass
class HeldUp:
    """A permit that blocks its first caller until it is released."""

    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> float:
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(_DEADLINE)
        return 600.0


def test_what_an_election_takes_back_counts_for_nothing(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("rs", parameters=TESTING, election_timeout_ms=2000)
    with members.client() as client, closing(connect(members.uri)) as target, ThreadPoolExecutor(4) as workers:
        client["shop"].create_collection("old")
        for name in (_CLEARED, _EMPTIED):
            client["shop"][name.coll].insert_one({"_id": "of before"})
        create, drop = CreateTable(name=_CREATED, options=EMPTY), DropTables(names=(_DROPPED,))
        applier = MongoDdlApplier(target, permit=lambda: 600.0)
        before: dict[DownstreamDdl, Observation] = {ddl: applier.observe(names_of(ddl)) for ddl in (create, drop)}
        under_way: list[tuple[HeldUp, Future[Any]]] = []

        def begin(work: Callable[[HeldUp], Any]) -> None:
            permit = HeldUp()
            under_way.append((permit, workers.submit(_insisting, lambda: work(permit))))

        def apply(ddl: DownstreamDdl) -> Callable[[HeldUp], str]:
            return lambda permit: MongoDdlApplier(target, permit=permit).apply(ddl, before[ddl])

        def leave_effects_and_look() -> None:
            with members.primary().client(w=1) as alone:
                alone["shop"].create_collection("new")
                alone["shop"].drop_collection("old")
                for name in (_CLEARED, _EMPTIED):
                    alone["shop"][name.coll].delete_many({})
            begin(apply(create))
            begin(apply(drop))
            begin(lambda permit: _loader(target, _CLEARED, permit).clear(KeyRange()))
            begin(lambda permit: _loader(target, _EMPTIED, permit).empty())
            assert wait_until(lambda: all(held.reached.is_set() or done.done() for held, done in under_way), _DEADLINE)

        members.roll_back(leave_effects_and_look)
        for permit, _ in under_way:
            permit.go.set()
        created, dropped, cleared, empty = (done.result() for _, done in under_way)
        assert set(client["shop"].list_collection_names()) == {"new", "cleared", "emptied"}
        assert (created, dropped) == ("", "")
        assert (cleared, client["shop"]["cleared"].count_documents({})) == (1, 0)
        assert not empty


def _insisting(work: Callable[[], Any]) -> Any:
    """Retries while the target has no primary, as the owner and a job do."""
    while True:
        try:
            return work()
        except SinkUnavailable:
            continue


def _loader(target: Client, name: TableName, permit: HeldUp) -> MongoDocumentLoader:
    table = TargetTable(id=TableId("t"), source=name, name=name)
    return MongoDocumentLoader(target, table=table, once=False, permit=permit)
