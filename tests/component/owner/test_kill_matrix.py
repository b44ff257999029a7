"""`kill -9` of the owner just after it wrote to etcd or observed the target: another owner takes over, and the DDL takes effect exactly once.

These moments are inside a tick, where a test cannot stop the owner in another way. `tests/e2e/failover/` tests all other moments, with real
processors. The test revokes the lease of the killed owner at once, which has the effect of its expiry without the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from changefeed.records.requests import ChangefeedId
from tests.component.owner.conftest import Cluster, Database

POINTS = ["ddl_recorded", "ddl_observed", "ddl_released"]


@dataclass(frozen=True)
class Kind:
    """`subject`: the type of the DDL at whose failpoint the owner dies. `command`: its name in the target's oplog."""

    subject: str
    prepare: Callable[[Database], object]
    ddl: Callable[[Database], object]
    command: str
    there: Callable[[Database], bool]
    ddls: int = 1


def _two_to_rename(db: Database) -> None:
    db.create_collection("new")
    db.create_collection("old")


def _two_to_go(db: Database) -> None:
    db.create_collection("one")
    db.create_collection("two")


KINDS: dict[str, Kind] = {
    "create": Kind(
        subject="create",
        prepare=lambda db: None,
        ddl=lambda db: db.create_collection("made", capped=True, size=4096),
        command="create",
        there=lambda db: db["made"].options().get("capped") is True,
    ),
    "rename with dropTarget": Kind(
        subject="rename",
        prepare=_two_to_rename,
        ddl=lambda db: db["new"].rename("old", dropTarget=True),
        command="renameCollection",
        there=lambda db: db.list_collection_names() == ["old"],
    ),
    "dropDatabase": Kind(
        subject="drop",
        prepare=_two_to_go,
        ddl=lambda db: db.client.drop_database(db.name),
        ddls=2,
        command="drop",
        there=lambda db: db.list_collection_names() == [],
    ),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_ddl_is_there_exactly_once_after_its_owner_was_killed(
    cluster: Cluster, fresh_database: Callable[[], str], point: str
) -> None:
    names = {kind: fresh_database() for kind in KINDS}
    for name in KINDS:
        cluster.start_owner(name, failpoints=f"{point}/{KINDS[name].subject}=kill")
    cluster.stand()
    cluster.start_owner("last")
    feed = cluster.create("f", *names.values())
    with cluster.processor():
        cluster.until(lambda: cluster.began(feed))
        cluster.stand()
        done, killed = 0, set[str]()
        while (kind := cluster.next_owner(killed)) != "last":
            done += _dies_and_is_followed(cluster, feed, kind, names[kind], done)
            killed.add(kind)
        assert killed == KINDS.keys()


def _dies_and_is_followed(cluster: Cluster, feed: ChangefeedId, name: str, database: str, done: int) -> int:
    kind, source, target = KINDS[name], cluster.source[database], cluster.target[f"{database}_to"]
    kind.prepare(source)
    prepared = len(source.list_collection_names())
    cluster.until(lambda: cluster.settled(feed, done + prepared), f"what {name} needs")
    before = _commands(cluster, f"{database}_to", kind.command)
    kind.ddl(source)
    assert cluster.died(name) == -9, f"{name}: the owner did not die at its failpoint"
    cluster.revoke_lease(name)
    cluster.until(lambda: cluster.settled(feed, done + prepared + kind.ddls), name)
    assert kind.there(target), name
    sent = _commands(cluster, f"{database}_to", kind.command) - before
    assert sent == kind.ddls, name
    return prepared + kind.ddls


def _commands(cluster: Cluster, database: str, command: str) -> int:
    """How many times a command took effect in a database of the target."""
    entries: Any = cluster.target["local"]["oplog.rs"]
    return int(
        entries.count_documents({"op": "c", f"o.{command}": {"$exists": True}, "ns": {"$regex": f"^{database}\\."}})
    )
