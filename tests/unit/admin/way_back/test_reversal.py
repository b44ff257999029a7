"""The steps of a cut-over with a way back, while users, expiry and replication go on beside it, and the command is killed anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from admin.access import Access, Caller
from admin.desired import verbs
from admin.desired.desired_store import DesiredStore
from admin.way_back.reversal import AskedReversal, Reversal
from admin.way_back.sides import Restored
from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.capture_choice import CaptureChoice
from changefeed.config.configuration import Configuration
from changefeed.documents.document import Document
from changefeed.errors import SourceUnavailable, WrongState
from changefeed.lifecycle import Lifecycle, State
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, DesiredState, Expiry, WayBack
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableName
from coordination.etcd.protocol import Delete, Put
from coordination.layout import Layout, encode
from tests.memory_etcd import MemoryEtcd

_ID, _BACK = ChangefeedId("there"), ChangefeedId("back")
_CONFIGURATION = Configuration.parse({"id": _ID, "source": "mongodb://old", "sink": "mongodb://new"})
_CALLER = Caller(name="maria", access=Access.OPERATOR)
_EXPIRY = Expiry(table=TableName("shop", "sessions"), index="at_1", after=Document.of({"expireAfterSeconds": 60}))
_SUSPENDED = replace(_EXPIRY, after=Document.of({"expireAfterSeconds": 2**31 - 1}))
"""No value to come back to."""
_ROWS = 8


class _Reversal(Reversal):
    """Obstacles are tried with real servers."""

    def obstacles(self, asked: AskedReversal) -> list[str]:
        return []


class Killed(Exception):
    """The command, at this step."""


@dataclass
class SideModel:
    """One table. Rows below zero expire at once, where expiry is not suspended."""

    world: World
    suspended: bool
    rows: dict[int, int] = field(default_factory=dict)
    log: list[tuple[ClusterTime, int, int | None, str]] = field(default_factory=list)
    blocked: bool = False
    rolled_over: bool = False
    down: bool = False
    refuses: Restored = field(default_factory=Restored)
    """What it answers to a restore."""

    def write(self, row: int, value: int | None, by: str) -> None:
        if self.blocked and by == "user":
            return
        if value is None:
            self.rows.pop(row, None)
        else:
            self.rows[row] = value
        self.log.append((self.world.tick(), row, value, by))

    def expire(self) -> None:
        for row in [row for row in self.rows if row < 0 and not self.suspended]:
            self.write(row, None, "expiry")

    def _answer(self) -> None:
        if self.down:
            raise SourceUnavailable("nobody answers")

    def block(self, *, blocked: bool) -> None:
        with self.world.step():
            self._answer()
            given_up = self.world.store.read(_ID)[0].way_back is None or self.world.gives_up
            assert blocked or given_up or self.world.back() is not None, "nothing would bring their writes back"
            self.blocked = blocked

    def expiries(self, _: object) -> tuple[Expiry, ...]:
        with self.world.step():
            return (_SUSPENDED if self.suspended else _EXPIRY,)

    def suspend(self, expiries: tuple[Expiry, ...]) -> None:
        with self.world.step():
            assert expiries == (_EXPIRY,)
            self.suspended = True

    def restore(self, expiries: tuple[Expiry, ...], _: object = None) -> Restored:
        with self.world.step():
            self._answer()
            assert expiries in ((), (_EXPIRY,))
            if expiries and not self.refuses.problems:
                self.suspended = False
            return self.refuses

    def newest(self) -> ClusterTime:
        with self.world.step():
            self._answer()
            info, _ = self.world.store.read(_ID)
            self.world.looked = info.way_back is not None and info.way_back.mark_ts is not None
            return self.world.tick()

    def mark(self, *_: object) -> ClusterTime:
        with self.world.step():
            return self.world.tick()

    def reaches(self, _: object) -> bool:
        return not self.rolled_over

    def foreign(self, _: object, after: ClusterTime, until: ClusterTime) -> tuple[str, ...]:
        with self.world.step():
            return tuple(f"{by} wrote {row}" for at, row, _, by in self.log if after < at <= until)


class World:
    def __init__(self, seed: int, *, blocks: bool, deaths: int) -> None:
        self.random = Random(seed)
        self.deaths = deaths
        self._now = 1
        self.old, self.new = SideModel(self, suspended=False), SideModel(self, suspended=True)
        self.etcd, self.layout = MemoryEtcd().connect(), Layout("test")
        self.store = DesiredStore(self.etcd, self.layout)
        self.asked = AskedReversal(id=_ID, back=_BACK, blocks=blocks)
        self.gives_up = False
        self.held_at: tuple[int, Callable[[], object]] | None = None
        """After so many steps the call is held up, while another one does something."""
        self.looked = False
        """What others wrote is looked for. From then on the way back writes at the source, and nothing tells its writes from theirs."""
        self.moved = False
        """The users have read "open"."""
        self._there = 0
        self._stands_still = 0
        self.store.create(
            verbs.created(_CONFIGURATION, CaptureChoice(capture=Capture.OPLOG, reason=""), datetime.now(UTC))
        )
        self._show(_ID, State.NORMAL)

    def tick(self) -> ClusterTime:
        self._now += 1
        return ClusterTime(self._now, 1)

    @contextmanager
    def step(self) -> Iterator[None]:
        """Of the command: it may die before or after what it does, and much may happen meanwhile."""
        if self.held_at is not None:
            left, meanwhile = self.held_at
            self.held_at = (left - 1, meanwhile) if left else None
            if not left:
                meanwhile()
        self._die()
        self.go_on()
        yield
        self.go_on()
        self._die()

    def _die(self) -> None:
        if self.deaths and self.random.random() < 0.2:
            self.deaths -= 1
            raise Killed

    def go_on(self) -> None:
        for _ in range(self.random.randrange(4)):
            self.random.choice((self._use, self.old.expire, self.new.expire, self.replicate))()

    def _use(self) -> None:
        side = self.new if self.moved or self._strays() else self.old
        if side is self.old and self.looked:
            return
        side.write(self.random.randrange(-_ROWS, _ROWS), self.random.choice([None, self._now]), "user")

    def _strays(self) -> bool:
        """A user writes at the target too early, which only a block prevents."""
        info, _ = self.store.read(_ID)
        way = info.way_back
        return not self.asked.blocks and way is not None and way.stopped_ts is not None and self.random.random() < 0.3

    def replicate(self) -> None:
        info, _ = self.store.read(_ID)
        end = info.configuration.target
        left = [entry for entry in self.old.log[self._there :] if end is None or entry[0] < end]
        for _, row, value, _ in left[: self.random.randrange(3)]:
            self.new.write(row, value, "replication")
            self._there += 1
            return
        if end is not None and not left:
            if 0 < self._stands_still <= 2 and self._there:
                _, row, value, _ = self.old.log[self._there - 1]
                self.new.write(row, value, "replication")  # what a node had under way
            self._stands_still += 1
            self._show(_ID, State.FINISHED, still=self._stands_still > 2)
        back = self.back()
        if back is not None:
            self._show(_BACK, State.NORMAL)

    def back(self) -> Configuration | None:
        try:
            info, _ = self.store.read(_BACK)
        except Exception:  # noqa: BLE001 - not created yet
            return None
        return info.configuration

    def come_back(self) -> None:
        back = self.back()
        assert back is not None
        for at, row, value, _ in self.new.log:
            if at >= cast("ClusterTime", back.start):
                self.old.write(row, value, "replication")

    def _show(self, id: ChangefeedId, state: State, *, still: bool = False) -> None:
        at = Position(ClusterTime(1, 1))
        status = ChangefeedStatus(
            lifecycle=Lifecycle(state=state), checkpoint=at, resolved=at, info_version=1, epoch=1, still=still
        )
        self.etcd.txn((), (Put(self.layout.status(id), encode(status)),))

    def reversal(self) -> Reversal:
        def changefeed(id: ChangefeedId) -> Any:
            info, status = self.store.read(id)
            return SimpleNamespace(info=info, status=status)

        found = SimpleNamespace(
            accepted=lambda: CaptureChoice(capture=Capture.OPLOG, reason=""), source_id="", sink_id=""
        )
        return _Reversal(
            cast("Any", SimpleNamespace(changefeed=changefeed)),
            self.store,
            cast("Any", SimpleNamespace(findings=lambda *_, **__: found)),
            lambda _: cast("Any", (self.old, self.new)),
        )

    def wait(self) -> bool:
        self._die()
        self.go_on()
        self.replicate()
        return True

    def finalize(self) -> tuple[str, ...]:
        """As the command does it. Returns what others wrote."""
        changes = cast("Any", SimpleNamespace(wait=self.wait))
        reversal = self.reversal()
        reversal.begin(self.asked, _CALLER)
        while not self._finished():
            self.wait()
        [done] = reversal.complete(self.asked, _CALLER, changes)
        self.moved = True
        return tuple(done.foreign)

    def _finished(self) -> bool:
        _, status = self.store.read(_ID)
        return status is not None and status.lifecycle.state is State.FINISHED

    def persist(self) -> tuple[str, ...]:
        while True:
            try:
                return self.finalize()
            except Killed:
                self.go_on()


@pytest.mark.parametrize("seed", range(150))
def test_what_users_write_at_the_target_makes_both_sides_equal_again(seed: int) -> None:
    world = World(seed, blocks=True, deaths=seed % 6)
    for _ in range(6):
        world.go_on()
    foreign = world.persist()
    way = world.store.read(_ID)[0].way_back
    assert way is not None
    assert way.mark_ts is not None
    assert all(at < way.mark_ts for at, _, _, by in world.new.log if by == "replication")
    assert foreign == ()
    assert not world.new.blocked
    assert not world.new.suspended
    assert world.old.blocked
    for _ in range(10):
        world.go_on()
    world.come_back()
    assert world.old.rows == world.new.rows


@pytest.mark.parametrize("seed", range(150))
def test_without_a_block_what_others_wrote_is_named_where_the_sides_differ(seed: int) -> None:
    world = World(seed, blocks=False, deaths=seed % 6)
    for _ in range(6):
        world.go_on()
    foreign = world.persist()
    world.moved = True
    world.come_back()
    if not foreign:
        assert world.old.rows == world.new.rows
    assert all(text.startswith("user wrote") for text in foreign)


@pytest.mark.parametrize("seed", range(40))
def test_before_the_mark_it_can_be_given_up(seed: int) -> None:
    """Killed at any step."""
    world = World(seed, blocks=True, deaths=1)
    try:
        world.finalize()
    except Killed:
        info, _ = world.store.read(_ID)
        if info.way_back is None or info.way_back.open:
            with pytest.raises(WrongState):
                world.reversal().give_up(_ID, _CALLER)
            return
        if info.way_back.mark_ts is not None:
            return
        world.gives_up, world.deaths = True, 2
        _again(lambda: world.reversal().give_up(_ID, _CALLER))
        info, _ = world.store.read(_ID)
        assert (info.way_back, info.configuration.target, info.desired) == (None, None, DesiredState.RUNNING)
        assert not any((world.old.blocked, world.new.blocked, world.old.suspended))
        assert world.new.suspended


@pytest.mark.parametrize("seed", range(20))
def test_past_the_mark_its_way_back_alone_can_be_given_up_where_the_oplog_does_not_reach_back_any_more(
    seed: int,
) -> None:
    world = World(seed, blocks=True, deaths=0)
    for _ in range(6):
        world.go_on()
    world.new.rolled_over = True
    with pytest.raises(WrongState, match=r"no way back from it any more.* --give-up"):
        world.persist()
    world.gives_up, world.deaths = True, 3
    _again(lambda: world.reversal().give_up(_ID, _CALLER))
    for _ in range(6):
        world.replicate()
    assert world.back() is None
    assert (world.old.blocked, world.new.blocked, world.new.suspended) == (True, False, False)
    live = {row: value for row, value in world.old.rows.items() if row >= 0}
    assert {row: value for row, value in world.new.rows.items() if row >= 0} == live
    info, status = world.store.read(_ID)
    assert verbs.removed(info, status).desired is DesiredState.REMOVED


def _begun(seed: int = 4) -> World:
    world = World(seed, blocks=True, deaths=0)
    world.reversal().begin(world.asked, _CALLER)
    world.gives_up = True
    return world


def _is_free(world: World) -> bool:
    info, status = world.store.read(_ID)
    return info.way_back is None and verbs.removed(info, status).desired is DesiredState.REMOVED


def test_before_the_mark_it_is_given_up_though_the_source_is_gone_and_what_it_keeps_is_told() -> None:
    world = _begun()
    world.old.down = True
    told = world.reversal().give_up(_ID, _CALLER)
    assert _is_free(world)
    assert not world.new.blocked
    block, expiry = told.problems
    assert block.startswith("source: it does not answer (nobody answers); should it come back, its users' writes are")
    changed = '{"collMod": "sessions", "index": {"name": "at_1", "expireAfterSeconds": 60}}'
    assert expiry.endswith(f'you run db.getSiblingDB("shop").runCommand({changed})')


def test_before_the_mark_it_is_given_up_though_the_target_is_gone() -> None:
    world = _begun()
    world.new.down = True
    [block] = world.reversal().give_up(_ID, _CALLER).problems
    assert block.startswith("target: it does not answer")
    assert _is_free(world)
    assert (world.old.blocked, world.old.suspended) == (False, False)


def test_it_is_not_given_up_while_neither_side_answers() -> None:
    world = _begun()
    world.old.down = world.new.down = True
    with pytest.raises(SourceUnavailable):
        world.reversal().give_up(_ID, _CALLER)
    assert world.store.read(_ID)[0].way_back is not None


def test_it_is_not_given_up_while_the_source_refuses_to_restore_an_expiry() -> None:
    world = _begun()
    world.old.refuses = Restored(failed=["not authorized"])
    with pytest.raises(WrongState, match="not authorized; mend that, and give it up again"):
        world.reversal().give_up(_ID, _CALLER)
    assert (world.old.blocked, world.new.blocked) == (True, True)
    world.old.refuses = Restored()
    assert not world.reversal().give_up(_ID, _CALLER).problems
    assert _is_free(world)
    assert not any((world.old.blocked, world.new.blocked, world.old.suspended))


def test_an_expiry_whose_table_is_gone_is_told_and_holds_nothing_up() -> None:
    gone = Restored(gone=["shop.sessions is not there any more"])
    world = _begun()
    world.old.refuses = gone
    assert world.reversal().give_up(_ID, _CALLER).problems == gone.gone
    assert _is_free(world)
    world = World(4, blocks=True, deaths=0)
    world.new.refuses = gone
    world.persist()
    way = world.store.read(_ID)[0].way_back
    assert way is not None
    assert way.open


def test_past_the_mark_the_target_can_be_opened_though_the_source_is_gone_for_good() -> None:
    world = World(3, blocks=True, deaths=0)
    way = WayBack(id=_BACK, blocks=True, expiries=(), stopped_ts=ClusterTime(8, 1), mark_ts=ClusterTime(9, 1))
    ended = _CONFIGURATION.model_copy(update={"target": ClusterTime(7, 1)})
    world.store.change(_ID, lambda info, _: replace(info, way_back=way, configuration=ended), "")
    world.old.down = world.new.blocked = world.gives_up = True
    told = world.reversal().give_up(_ID, _CALLER)
    assert "source: what was written there since 7.1 is not known: nobody answers" in told.foreign
    assert not world.new.blocked


@pytest.mark.parametrize("steps", range(14))
def test_a_call_that_was_held_up_while_another_one_gave_up_leaves_nothing(steps: int) -> None:
    """Past the mark the target stays open."""
    world = World(steps, blocks=True, deaths=0)
    given_up: list[bool] = []

    def give_up() -> None:
        world.gives_up = True
        with suppress(WrongState):
            world.reversal().give_up(_ID, _CALLER)
            given_up.append(True)

    world.held_at = steps, give_up
    with suppress(WrongState):
        world.finalize()
    info, _ = world.store.read(_ID)
    if given_up and info.way_back is not None:
        assert (info.way_back.open, world.old.blocked, world.new.blocked) == (True, True, False)
    elif given_up:
        assert info.configuration.target is None
        assert not any((world.old.blocked, world.new.blocked, world.old.suspended))


@pytest.mark.parametrize("steps", range(14))
def test_a_call_that_was_held_up_while_another_one_went_through_changes_nothing(steps: int) -> None:
    world = World(steps, blocks=True, deaths=0)
    world.held_at = steps, world.finalize
    world.finalize()
    for _ in range(10):
        world.go_on()
    world.come_back()
    assert world.old.rows == world.new.rows
    assert (world.old.blocked, world.new.blocked, world.new.suspended) == (True, False, False)


@pytest.mark.parametrize("returned", [False, True])
def test_a_way_back_that_users_return_by_or_that_is_gone_is_not_made_again(returned: bool) -> None:
    world = World(5, blocks=True, deaths=0)
    world.persist()
    if returned:
        world.store.change(_BACK, lambda info, status: verbs.ending(info, status, world.tick()), "finalize")
    else:
        world.etcd.txn((), (Delete(world.layout.info(_BACK)), Delete(world.layout.status(_BACK))))
    world.new.blocked = True  # by the return
    before = world.store.read(_ID)
    with pytest.raises(WrongState, match=r"finalized, removed or given up.* remove 'there'"):
        world.finalize()
    assert (world.back() is not None) is returned
    assert world.new.blocked
    assert world.store.read(_ID) == before


def _again(call: Callable[[], object]) -> None:
    while True:
        try:
            call()
        except Killed:
            continue
        return


def test_a_changefeed_amid_its_cut_over_is_not_removed_and_one_past_it_does_not_go_on() -> None:
    world = World(0, blocks=True, deaths=0)
    world.reversal().begin(world.asked, _CALLER)
    info, status = world.store.read(_ID)
    with pytest.raises(WrongState, match="give it up"):
        verbs.removed(info, status)
    world.persist()
    info, status = world.store.read(_ID)
    for verb in (lambda: verbs.resumed(info, status, None), lambda: verbs.check_gives_up(info)):
        with pytest.raises(WrongState, match=r"back"):
            verb()
    assert verbs.removed(info, status).desired is DesiredState.REMOVED


def test_from_its_mark_on_it_does_not_go_on() -> None:
    """Rows would go round in a circle, though the way back does not run yet."""
    way = WayBack(id=_BACK, mark_ts=ClusterTime(9, 1))
    info = replace(World(0, blocks=True, deaths=0).store.read(_ID)[0], desired=DesiredState.PAUSED, way_back=way)
    with pytest.raises(WrongState, match="'back' is its way back"):
        verbs.resumed(info, None, None)


def test_another_way_back_is_refused_while_one_is_under_way() -> None:
    world = World(0, blocks=True, deaths=0)
    world.reversal().begin(world.asked, _CALLER)
    with pytest.raises(WrongState, match="with the way back 'back'"):
        world.reversal().begin(replace(world.asked, back=ChangefeedId("other")), _CALLER)
