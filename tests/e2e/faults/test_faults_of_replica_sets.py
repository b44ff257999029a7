"""Source and target are replica sets of three, and suffer faults while they are replicated: alone, together, and with nodes and etcd.

After each fault both sides are equal and the changefeed is healthy; it never failed, and its errors named no healthy server.
`make chaos` does the same in any order for longer, with the election timeout that users have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest
from pymongo import WriteConcern

from changefeed.lifecycle import State
from devstack.mongodb.replica_set import ReplicaSet
from devstack.process import side_by_side
from tests.e2e.faults.replicating_sets import NODES, ReplicatingSets

pytestmark = pytest.mark.costly("six members of two replica sets, three of etcd, and two nodes with Spark")

_LASTS_SECONDS = 2.0
_SIDES = ("source", "target")
_CODES = {  # a primary without its members may answer and accept writes until it notices, or until they are back
    "source": ("source_unavailable", "source_majority_stalled"),
    "target": ("sink_unavailable", "sink_majority_stalled"),
}
_COORDINATION = ("coordination_unavailable", "outcome_unknown")
_OVERLOADED = "did not answer in time"  # possible for any server here: nodes, etcd and six members share this machine
_ONE = WriteConcern(1)

Fault = Callable[[ReplicaSet], None]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicatingSets]:
    with ReplicatingSets(tmp_path_factory.mktemp("faults")) as started:
        yield started


def _last() -> None:
    """Waits as long as the fault lasts."""
    threading.Event().wait(_LASTS_SECONDS)


def _step_down(members: ReplicaSet) -> None:
    members.step_down(1)
    members.wait_for_primary()


def _kill_the_primary(members: ReplicaSet) -> None:
    old = members.primary()
    old.kill()
    members.wait_for_primary()
    old.start()


def _freeze_the_primary(members: ReplicaSet) -> None:
    old = members.primary()
    old.pause()
    members.wait_for_primary(beside=old)
    old.resume()


def _cut_the_primary_off(members: ReplicaSet) -> None:
    """Isolates the primary from its members, but not from clients."""
    old = members.primary()
    members.cut_off(old, from_clients=False)
    members.wait_for_primary(beside=old)
    _last()
    members.reconnect()


def _restart_all(members: ReplicaSet) -> None:
    for member in members.members:
        member.kill()
    side_by_side([member.start for member in members.members])


def _keep_one_down(members: ReplicaSet) -> None:
    member = members.secondaries()[0]
    member.kill()
    _last()
    _last()
    member.start()


def _hold_the_majority(members: ReplicaSet) -> None:
    members.hold_majority()
    _last()
    members.release_majority()


_ALWAYS = ((_kill_the_primary, "target"),)


def _shown_is_true(standing: ReplicatingSets, codes: Sequence[str]) -> None:
    for _, shown in standing.states.shown:
        assert shown.state in (State.NORMAL, State.WARNING), shown
        assert shown.code in ("", *codes) or _OVERLOADED in shown.message, shown


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        pytest.param(fault, side, marks=() if (fault, side) in _ALWAYS else pytest.mark.soak)
        for fault in [_step_down, _kill_the_primary, _freeze_the_primary, _cut_the_primary_off, _hold_the_majority]
        for side in _SIDES
    ],
)
def test_one_side_is_struck(standing: ReplicatingSets, fault: Fault, side: str) -> None:
    with standing.load():
        fault(standing.sets[side])
    _shown_is_true(standing, _CODES[side])


@pytest.mark.soak
@pytest.mark.parametrize("fault", [_restart_all, _keep_one_down])
def test_both_sides_are_struck_at_once(standing: ReplicatingSets, fault: Fault) -> None:
    with standing.load():
        side_by_side([partial(fault, each) for each in standing.sets.values()])
    _shown_is_true(standing, [*_CODES["source"], *_CODES["target"]])


@pytest.mark.parametrize("freeze", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_nothing_that_rolled_back_at_the_source_is_ever_at_the_target(standing: ReplicatingSets, freeze: bool) -> None:
    ghosts = f"ghosts_{freeze}"

    def write() -> None:
        with standing.sets["source"].primary().client() as alone:
            fault = alone["fault"]
            fault.get_collection("marks", write_concern=_ONE).insert_many([{"_id": f"{ghosts} {n}"} for n in range(9)])
            fault.get_collection("marks", write_concern=_ONE).delete_many({"_id": {"$regex": "^mark"}})
            fault.with_options(write_concern=_ONE).create_collection(ghosts)
            fault.get_collection(ghosts, write_concern=_ONE).insert_one({"_id": 1})
        _last()

    with standing.load():
        standing.sets["source"].roll_back(write, freeze=freeze)
    for query in (
        {"ns": f"fault.{ghosts}"},
        {"o.create": ghosts},
        {"o._id": {"$regex": f"^{ghosts}"}},
        {"op": "d", "ns": "fault.marks"},
    ):
        assert standing.target["local"]["oplog.rs"].find_one(query) is None
    _shown_is_true(standing, _CODES["source"])


@pytest.mark.soak
@pytest.mark.parametrize("freeze", [False, True])
def test_rows_that_a_rollback_takes_from_the_target_come_again_and_ddl_waits_for_its_end(
    standing: ReplicatingSets, freeze: bool
) -> None:
    """No DDL begins while no majority confirms the target's state. `test_elections_under_ddl.py` rolls back the effects of DDL."""
    source, prefix = standing.source["fault"], f"rollback_{freeze}"
    tables = {kind: f"{prefix}_{kind}" for kind in ("dropped", "renamed", "modified", "indexed", "bared", "filled")}
    for table in tables.values():
        source[table].insert_many([{"_id": n, "a": n} for n in range(20)])
    source[tables["bared"]].create_index("a")

    def write() -> None:
        filled = tables["filled"]
        source[filled].insert_one({"_id": "lost"})
        with standing.sets["target"].primary().client() as alone:
            target = alone["fault"]
            standing.until(lambda: target[filled].find_one({"_id": "lost"}), "the row that the target is to lose")
        source.create_collection(f"{prefix}_created")
        source[tables["dropped"]].drop()
        source[tables["renamed"]].rename(f"{prefix}_new_name")
        source.command("collMod", tables["modified"], validator={"a": {"$gte": 0}})
        source[tables["indexed"]].create_index("a")
        source[tables["bared"]].drop_index("a_1")

    with standing.load(begin=False) as load:
        standing.until(lambda: not standing.differences(load.databases), "the tables before")
        standing.until_majority("target")
        standing.sets["target"].roll_back(write, freeze=freeze)
    _shown_is_true(standing, _CODES["target"])


@pytest.mark.soak
def test_etcd_loses_its_leader_while_the_source_elects(standing: ReplicatingSets) -> None:
    with standing.load():
        leader = standing.etcd.leader()
        side_by_side([leader.kill, lambda: _step_down(standing.sets["source"])])
        _last()
        leader.start()
    _shown_is_true(standing, [*_CODES["source"], *_COORDINATION])


@pytest.mark.soak
def test_etcd_is_full_while_the_target_elects(standing: ReplicatingSets) -> None:
    with standing.load():
        standing.etcd.fill_up()
        _step_down(standing.sets["target"])
        _last()
        standing.etcd.make_room()
    _shown_is_true(standing, [*_CODES["target"], *_COORDINATION])


@pytest.mark.soak
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_node_dies_with_a_primary(standing: ReplicatingSets, side: str) -> None:
    node = standing.nodes[NODES[_SIDES.index(side)]]
    with standing.load():
        side_by_side([node.kill, lambda: _kill_the_primary(standing.sets[side])])
        node.start()
    _shown_is_true(standing, _CODES[side])
