"""What a member's `hello` says of the majority, and when it says nothing yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pymongo import MongoClient

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from source.oplog import window
from source.oplog.window import majority_time

_NEWEST, _MAJORITY = ClusterTime(1795335509, 1), ClusterTime(1795335500, 3)


def told(monkeypatch: pytest.MonkeyPatch, hello: Mapping[str, Any]) -> ClusterTime:
    monkeypatch.setattr(window, "read_command", lambda *_, session: session.advance_cluster_time(_NOW) or hello)
    with MongoClient[dict[str, Any]]("127.0.0.1:1", connect=False) as client:
        return majority_time(client)


_NOW = {"clusterTime": _NEWEST.to_bson(), "signature": {}}


def test_the_majoritys_time_is_that_of_hello_and_for_a_router_its_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    last = {"opTime": {"ts": _NEWEST.to_bson()}, "majorityOpTime": {"ts": _MAJORITY.to_bson()}}
    assert told(monkeypatch, {"setName": "rs", "lastWrite": last}) == _MAJORITY
    assert told(monkeypatch, {"msg": "isdbgrid"}) == _NEWEST


def test_a_member_that_does_not_know_the_majoritys_time_yet_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    hello = {"setName": "rs", "me": "a:1", "lastWrite": {"opTime": {"ts": _NEWEST.to_bson()}}}
    with pytest.raises(
        SourceUnavailable, match="a:1 does not know yet what the majority of rs has: it has just started"
    ):
        told(monkeypatch, hello)
