"""A target whose majority is late: what was written is waited for, not sent again, and told for what it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from changefeed.document import EMPTY
from changefeed.errors import SinkMajorityStalled
from changefeed.records import Observation
from changefeed.table import TableName
from devstack.mongodb import TESTING, Client
from sink.ddl import CreateTable
from sink.mongodb.commander import Commander, Send
from sink.mongodb.connection import connect
from sink.mongodb.ddl_applier import MongoDdlApplier
from tests.conftest import ReplicaSets

_LONG = timedelta(seconds=60)
_INSERT: dict[str, Any] = {"insert": "rows", "documents": [{"_id": 1}], "writeConcern": {"w": "majority"}}
_TRUTH = "the majority of replica set 'target' has not moved since"


def _commander(client: Client, *, patience: float) -> Commander:
    commander = Commander(client, permit=lambda: 10.0, retry_for=_LONG, patience=timedelta(seconds=patience))
    commander.begin()
    return commander


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
        reply = sent.result(timeout=60)
        assert (reply.document["n"], reply.again, late.retries) == (1, False, 0)
        assert _created(client, "a") == "it was done already"


def _created(client: Client, coll: str) -> str:
    name = TableName("shop", coll)
    applier = MongoDdlApplier(client, permit=lambda: 10.0)
    return applier.apply(CreateTable(name=name, options=EMPTY), Observation(tables={name: None}))
