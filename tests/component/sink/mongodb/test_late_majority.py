"""A target whose majority is late: Sluice waits for its writes, does not send them again, and reports the cause."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from pymongo import WriteConcern

from changefeed.documents.document import EMPTY, Document
from changefeed.errors import SinkMajorityStalled
from changefeed.records.ddl import Observation
from changefeed.table import TableName
from devstack.mongodb.server import TESTING, Client
from sink.ddl import CreateIndexes, CreateTable
from sink.mongodb.commander import Commander, Send
from sink.mongodb.connection import connect
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from tests.conftest import ReplicaSets
from tests.until import PATIENCE_SECONDS

_LONG = timedelta(seconds=60)
_INSERT: dict[str, Any] = {"insert": "rows", "documents": [{"_id": 1}], "writeConcern": {"w": "majority"}}
_TRUTH = "the majority of replica set 'target' has not moved since"


def _commander(client: Client, *, patience: float) -> Commander:
    commander = Commander(client, permit=lambda: 10.0, retry_for=_LONG, patience=timedelta(seconds=patience))
    commander.begin()
    return commander


@pytest.mark.soak
def test_what_the_majority_gets_late_is_written_once_and_what_it_does_not_get_is_told(
    own_replica_set: ReplicaSets,
) -> None:
    members = own_replica_set("target", parameters=TESTING)
    with connect(members.uri) as client, ThreadPoolExecutor(1) as pool:
        client["shop"].create_collection("rows")
        members.hold_majority()
        with pytest.raises(SinkMajorityStalled, match=_TRUTH):
            _commander(client, patience=1).send("shop", dict(_INSERT), "insert")

        def exchange(send: Send) -> None:
            send("shop", {"insert": "rows", "documents": [{"_id": 2}]})

        with pytest.raises(SinkMajorityStalled, match=_TRUTH):
            _commander(client, patience=1).together(exchange, "an exchange")
        with pytest.raises(SinkMajorityStalled, match=f"create on shop.a: .*{_TRUTH}"):
            _created(client, "a")
        late = _commander(client, patience=60)
        sent = pool.submit(late.send, "shop", _INSERT | {"documents": [{"_id": 3}]}, "insert")
        assert not sent.done()
        members.release_majority()
        reply = sent.result(PATIENCE_SECONDS)
        assert (reply.document["n"], reply.again, late.retries) == (1, False, 0)
        assert _created(client, "a") == "it was done already"


def test_an_index_build_is_not_begun_under_a_majority_that_stands_still(own_replica_set: ReplicaSets) -> None:
    """The build would wait for its commit quorum without any report."""
    members = own_replica_set("target", parameters=TESTING)
    ddl = CreateIndexes(name=TableName("shop", "a"), indexes=(Document.of({"key": {"x": 1}, "name": "x_1"}),))
    with connect(members.uri) as client:
        client["shop"]["a"].insert_one({"_id": 1})
        applier = MongoDdlApplier(client, permit=lambda: 30.0)
        before = applier.observe([ddl.name])
        members.hold_majority()
        client["shop"].get_collection("a", write_concern=WriteConcern(1)).insert_one({"_id": 2})
        with pytest.raises(SinkMajorityStalled, match=_TRUTH):
            applier.apply(ddl, before)
        members.release_majority()
        assert applier.apply(ddl, before) == ""
        assert "x_1" in client["shop"]["a"].index_information()


def test_an_index_build_waits_for_the_majority_and_not_for_a_member_that_is_down(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("target")
    ddl = CreateIndexes(name=TableName("shop", "a"), indexes=(Document.of({"key": {"x": 1}, "name": "x_1"}),))
    with connect(members.uri) as client, ThreadPoolExecutor(1) as pool:
        client["shop"]["a"].insert_one({"_id": 1})
        applier = MongoDdlApplier(client, permit=lambda: 30.0)
        before = applier.observe([ddl.name])
        members.secondaries()[0].kill()
        assert pool.submit(applier.apply, ddl, before).result(PATIENCE_SECONDS) == ""


def _created(client: Client, coll: str) -> str:
    name = TableName("shop", coll)
    applier = MongoDdlApplier(client, permit=lambda: 10.0)
    return applier.apply(CreateTable(name=name, options=EMPTY), Observation(tables={name: None}))
