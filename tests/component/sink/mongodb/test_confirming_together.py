"""Several writes that wait for the target's majority together: none counts before the majority has all of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from pymongo import monitoring

from changefeed.errors import RowRejected, SinkMajorityStalled, SinkUnavailable
from devstack.mongodb.server import TESTING, Client
from sink.mongodb.commander import Commander
from sink.mongodb.connection import connect
from tests.conftest import ReplicaSets

_LONG = timedelta(seconds=60)


class Concerns(monitoring.CommandListener):
    """The write concern of each write that was sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        concern: Mapping[str, Any] | None = event.command.get("writeConcern")
        if concern is not None:
            self.sent.append((event.command_name, concern["w"]))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def _commander(client: Client, *, patience: float = 60) -> Commander:
    commander = Commander(client, permit=lambda: 10.0, retry_for=_LONG, patience=timedelta(seconds=patience))
    commander.begin()
    return commander


def _insert(commander: Commander, database: str, id: int) -> None:
    command = {"insert": "rows", "documents": [{"_id": id}], "writeConcern": {"w": "majority"}}
    commander.send(database, command, f"insert {id}")


def test_only_the_end_waits_for_the_majority(target_uri: str, database: str) -> None:
    concerns = Concerns()
    with Client(target_uri, event_listeners=[concerns]) as client:
        commander = _commander(client)
        with commander.confirming_together(database):
            _insert(commander, database, 1)
            _insert(commander, database, 2)
        _insert(commander, database, 3)
    assert concerns.sent == [("insert", 1), ("insert", 1), ("delete", "majority"), ("insert", "majority")]


def test_nothing_is_asked_of_the_majority_where_nothing_was_written(target_uri: str, database: str) -> None:
    concerns = Concerns()
    with Client(target_uri, event_listeners=[concerns]) as client, _commander(client).confirming_together(database):
        pass
    assert concerns.sent == []


def test_a_refusal_counts_only_when_the_majority_has_what_came_before_it(target_uri: str, database: str) -> None:
    concerns = Concerns()
    with Client(target_uri, event_listeners=[concerns]) as client:
        commander = _commander(client)

        def refused() -> None:
            with commander.confirming_together(database):
                _insert(commander, database, 1)
                raise RowRejected("no row")

        with pytest.raises(RowRejected, match="no row"):
            refused()
    assert concerns.sent == [("insert", 1), ("delete", "majority")]


def test_a_majority_that_does_not_get_the_writes_is_told(own_replica_set: ReplicaSets) -> None:
    members = own_replica_set("target", parameters=TESTING)
    with connect(members.uri) as client:
        client["shop"].create_collection("rows")
        members.hold_majority()
        commander = _commander(client, patience=1)
        with (
            pytest.raises(SinkMajorityStalled, match="waiting until the majority has the rows"),
            commander.confirming_together("shop"),
        ):
            _insert(commander, "shop", 1)
        members.release_majority()


@pytest.mark.parametrize("again", [True, False], ids=["before the next write", "before the confirmation"])
def test_writes_on_both_sides_of_an_election_are_not_confirmed(own_replica_set: ReplicaSets, again: bool) -> None:
    """The new primary may lack those of the old one, though its majority has all later writes."""
    members = own_replica_set("target")
    with connect(members.uri) as client:
        commander = _commander(client)

        def write_on_both_sides() -> None:
            with commander.confirming_together("shop"):
                _insert(commander, "shop", 1)
                members.step_down()
                if again:
                    _insert(commander, "shop", 2)

        with pytest.raises(SinkUnavailable, match="elected another primary before its majority had the write"):
            write_on_both_sides()
        _insert(commander, "shop", 3)
