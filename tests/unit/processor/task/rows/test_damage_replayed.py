"""Rows that a third party damaged at the target are found, and no others, whatever windows, attempts and nodes replay their history."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, TypeAlias, cast

import bson
from hypothesis import Phase, given, note, settings
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.errors import Divergence
from changefeed.event import RowType
from changefeed.position import Position, Window
from changefeed.records.ddl import Barrier
from changefeed.table import TableId, TableName
from processor.lanes.lane_plan import LaneLimits, Paces, plan
from processor.lanes.lanes import LaneJob, Lanes
from processor.lanes.windows import Pace
from processor.task.job import JobOutcome
from processor.task.rows.applier import Applier
from sink.dependence import Dependence
from sink.mongodb.connection import Client
from sink.mongodb.rows.row_writer import MongoRowWriter
from sink.row import RowChange, SourceRow, TargetTable
from tests.unit.processor.task.rows.beside import BESIDE
from tests.unit.processor.task.rows.unique_target import Row, UniqueTarget
from tests.unit.sink.mongodb.rows import update_model

Event: TypeAlias = tuple[str, str, Any]
"""Kind, `_id`, and the fields set or the document."""

_START = 100
_ID = TableId("ab" * 16)
_NAME = TableName("shop", "orders")
_KEYS = "qrs"
_KINDS = {"i": RowType.INSERT, "r": RowType.REPLACE, "d": RowType.DELETE, "u": RowType.UPDATE}


class History:
    """One event per second, as far as the source accepts them; the rows before and after each. Values are unique if the table is ordered."""

    def __init__(self, events: Sequence[Event], *, ordered: bool) -> None:
        unique = Dependence.of([{"key": {"u": 1}}], capped=False) if ordered else None
        self.table = TargetTable(id=_ID, source=_NAME, name=_NAME, ordered=ordered, dependence=unique)
        self.states: list[dict[str, Row]] = [{}]
        self.events: list[RowChange] = []
        for kind, key, content in events:
            event = kind, key, {name: content[name] for name in content or () if ordered or name != "u"}
            after = _after(self.states[-1], event)
            if after is not None:
                self.events.append(self._change(event, _START + len(self.events)))
                self.states.append(after)

    def _change(self, event: Event, second: int) -> RowChange:
        kind, key, content = event
        document = bson.encode({"_id": key, **content}) if kind in "ir" else None
        update = bson.encode({"updatedFields": content, "removedFields": []}) if kind == "u" else None
        time = ClusterTime(second, 1).to_int()
        return RowChange(
            self.table, _KINDS[kind], bson.encode({"_id": key}), document, update, time, f"82{second:08x}".encode()
        )

    def at(self, number: int) -> Position:
        return Position(ClusterTime(_START + number, 0))

    def within(self, window: Window) -> list[RowChange]:
        return [change for change in self.events if window.start <= change.position < window.end]


def _after(rows: dict[str, Row], event: Event) -> dict[str, Row] | None:
    """None if the source refuses the event: another row has the value, or `a` is no document."""
    kind, key, content = event
    if (key in rows) is (kind == "i"):
        return None
    after = deepcopy(rows)
    if kind == "d":
        del after[key]
        return after
    if kind == "u":
        try:
            after[key] = update_model.apply(after[key], {"$set": content})
        except update_model.Refused:
            return None
    else:
        after[key] = {"_id": key, **content}
    values = [row["u"] for row in after.values() if "u" in row]
    return after if len(values) == len(set(values)) else None


class Node:
    """Runs one table like a node; `sees` is the source's position when a row is read there."""

    def __init__(self, history: History, target: UniqueTarget, *, start: int, barrier: int, repairs: bool) -> None:
        self.history, self.target = history, target
        self.sees = barrier
        self.writer = MongoRowWriter(
            cast("Client", target), permit=lambda: 60.0, fetch=lambda change: self._fetched(change.key), repairs=repairs
        )
        self.barrier = Barrier(epoch=1, position=history.at(barrier))
        at = history.at(start)
        self.lanes = Lanes.empty(at).assign({_ID: at}, self.barrier)

    def _fetched(self, key: bytes) -> SourceRow:
        row = self.history.states[self.sees].get(bson.decode(key)["_id"])
        return SourceRow(bson.encode(row) if row is not None else None, self.history.at(self.sees).ts)

    @property
    def checkpoint(self) -> int:
        return self.lanes.checkpoint_of(_ID).ts.seconds - _START

    def opens(self, number: int) -> None:
        self.barrier = Barrier(epoch=1, position=self.history.at(number))
        self.sees = max(self.sees, number)

    def begin(self, seconds: int) -> LaneJob | None:
        pace = Pace(seconds=seconds)
        jobs = plan(self.lanes, self.barrier, Paces(default=pace, own=pace), LaneLimits())
        for job in jobs:
            self.lanes = self.lanes.started(job)
        return jobs[0] if jobs else None

    def run(self, job: LaneJob, upto: int | None = None) -> JobOutcome | None:
        """None if the job was interrupted after `upto` events."""
        applier = Applier(self.writer, job, BESIDE)
        try:
            for change in self.history.within(job.scan)[:upto]:
                applier.add(change)
            if upto is not None:
                applier.flush()
                self.lanes = self.lanes.failed(job.number)
                return None
            applier.finish()
        except Divergence:
            self.lanes = self.lanes.failed(job.number)
            raise
        self.lanes = self.lanes.finished(job.number, applier.outcome.rows.unsettled, applier.outcome.rows.ahead)
        return applier.outcome


_SETS = st.one_of(
    st.fixed_dictionaries({"x": st.integers(0, 9)}, optional={"a.b": st.integers(0, 9)}),
    st.fixed_dictionaries({"a": st.sampled_from([7, {}, {"b": {"c": 1}}])}),
    st.fixed_dictionaries({"a.b": st.sampled_from([7, {}, {"c": 2}])}),
    st.fixed_dictionaries({"a.b.c": st.integers(0, 9)}),
    st.fixed_dictionaries({"u": st.integers(0, 3)}),
)
_DOCUMENTS = st.fixed_dictionaries({"a": st.sampled_from([7, {}, {"b": {"c": 1}}])}, optional={"u": st.integers(0, 3)})
_EVENTS = st.one_of(
    *[st.tuples(st.just("u"), st.sampled_from(_KEYS), _SETS)] * 6,
    *[st.tuples(st.sampled_from("ir"), st.sampled_from(_KEYS), _DOCUMENTS)] * 3,
    st.tuples(st.just("d"), st.sampled_from(_KEYS), st.none()),
)
_HISTORIES = st.lists(_EVENTS, min_size=8, max_size=40)
_SHOWING: list[dict[str, Any]] = [{"a.b": {}}, {"touched": True}]
_TOUCHES: list[Event] = [("u", key, fields) for key in _KEYS for fields in _SHOWING]
"""At the end each row is changed in a way that reveals any damage."""


class Life:
    """Successive nodes with one target, and a third party that damages it."""

    def __init__(self, events: list[Event], draw: Any, *, ordered: bool, repairs: bool, damage: bool) -> None:
        self.history, self._draw = History([*events, *_TOUCHES], ordered=ordered), draw
        self._last = len(History(events, ordered=ordered).events)
        self._repairs, self._damages = repairs, damage
        self.target = UniqueTarget({})
        self.damaged: set[str] = set()
        self.divergences = 0
        self.node = Node(self.history, self.target, start=0, barrier=self._number(0), repairs=repairs)

    def _number(self, least: int) -> int:
        number: int = self._draw.draw(st.integers(least, max(least, self._last)))
        return number

    def _barrier(self) -> int:
        return self.node.barrier.position.ts.seconds - _START

    def live(self, steps: int) -> None:
        for _ in range(steps):
            match self._draw.draw(
                st.sampled_from(["window", "window", "broken", "barrier", "source", "kill", "damage"])
            ):
                case "window":
                    self.step()
                case "broken":
                    if job := self.node.begin(self._draw.draw(st.integers(1, 5))):
                        self._attempt(job, self._draw.draw(st.integers(0, 8)))
                case "barrier":
                    self.node.opens(self._number(self._barrier()))
                case "source":
                    self.node.sees = self._number(self.node.sees)
                case "kill":
                    self._kill()
                case "damage" if self._damages and self.target.rows:
                    self._damage(self._draw.draw(st.sampled_from(sorted(self.target.rows))))
                case _:
                    pass

    def end(self) -> None:
        """Runs to the end of the history without further damage."""
        self.node.opens(len(self.history.events))
        for _ in range(200):
            if not self.step():
                return
        raise AssertionError("no progress")

    def step(self) -> bool:
        job = self.node.begin(self._draw.draw(st.integers(1, 5)))
        return job is not None and self._attempt(job)

    def _attempt(self, job: LaneJob, upto: int | None = None) -> bool:
        note(f"{job.window} replay until {job.replay_of(_ID)}")
        try:
            outcome = self.node.run(job, upto)
        except Divergence as error:
            self._failed(str(error))
            return True
        if outcome is not None:
            assert not outcome.rows.tally.rejected, outcome.rows.samples
            assert not outcome.rows.tally.repaired or self.damaged, outcome.rows.samples
            self.divergences += outcome.rows.tally.repaired
        return True

    def _failed(self, message: str) -> None:
        note(message)
        named = set(re.findall(r"'_id': '(\w)'", message))
        assert named
        assert named <= self.damaged, message
        self.divergences += 1
        match self._draw.draw(st.sampled_from(["resume", "kill", "mend"])):
            case "mend":
                for key in named:
                    row = self.history.states[self.node.sees].get(key)
                    self.target.rows.pop(key, None)
                    if row is not None:
                        self.target.rows[key] = deepcopy(row)
            case "kill":
                self._kill()
            case _:
                pass

    def _kill(self) -> None:
        """The node's last checkpoints may not have been reported."""
        start = self._draw.draw(st.integers(max(0, self.node.checkpoint - 3), self.node.checkpoint))
        barrier = self._number(self._barrier())
        note(f"another node from {start} under barrier {barrier}")
        sees = max(barrier, self.node.sees)
        self.node = Node(self.history, self.target, start=start, barrier=barrier, repairs=self._repairs)
        self.node.sees = sees

    def _damage(self, key: str) -> None:
        row = self.target.rows[key]
        deletes = not isinstance(row.get("a"), dict) or self._draw.draw(st.booleans())
        note(f"damage: {key} {'is deleted' if deletes else 'gets another shape'}")
        self.damaged.add(key)
        if deletes:
            del self.target.rows[key]
        else:
            self.target.rows[key] = {**row, "a": "damaged"}


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(events=_HISTORIES, ordered=st.booleans(), draw=st.data())
def test_without_damage_nothing_is_taken_for_it(events: list[Event], ordered: bool, draw: st.DataObject) -> None:
    life = Life(events, draw, ordered=ordered, repairs=False, damage=False)
    life.live(12)
    life.end()
    assert life.divergences == 0
    assert life.target.rows == life.history.states[-1]


@settings(max_examples=60, phases=[Phase.explicit, Phase.generate])
@given(events=_HISTORIES, ordered=st.booleans(), repairs=st.booleans(), draw=st.data())
def test_damage_is_repaired_or_fails_the_changefeed_until_it_is_mended(
    events: list[Event], ordered: bool, repairs: bool, draw: st.DataObject
) -> None:
    """At the end of the history all rows are equal to the source's."""
    life = Life(events, draw, ordered=ordered, repairs=repairs, damage=True)
    life.live(16)
    life.end()
    assert life.target.rows == life.history.states[-1]
