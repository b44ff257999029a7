"""The owner's decision, one accident per test; `test_decision_machine.py` tries random sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Any, cast

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.config.tables.routes import Routes
from changefeed.documents.document import Document
from changefeed.errors import (
    DdlRefused,
    DdlUnsupported,
    RowRejected,
    SinkUnavailable,
    SluiceError,
    SourceMajorityStalled,
    SourceUnavailable,
    SourceUnsupported,
    TableUnknown,
)
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport, Lifecycle, State
from changefeed.position import Position
from changefeed.records.copy import CopyProgress
from changefeed.records.ddl import Barrier, DdlRecord, DdlState
from changefeed.records.node import NodeId, PositionReport
from changefeed.records.requests import ChangefeedInfo, TableVerb
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.sharded_history import ShardedHistory
from changefeed.table import TableId, TableKind, TableName, TableSchema, view_id
from coordination.large_values import LARGE_BYTES, MOST_BYTES
from owner.ddl.execution import Applied, DdlProgress, Failed, Observe, Refuse, Running, not_explained
from owner.ddl.scope import DdlClassifier
from owner.ddl.sightings import Sighting, Sightings
from owner.ddl.stragglers import StoredStraggler
from owner.decision.decide import Decision, LookUp, PublishBarrier, PublishStatus, RecordDdls, ReleaseDdls, decide
from owner.decision.state import ChangefeedState
from owner.tables.progress import TableProgress
from owner.tables.wishes import Mark, Resume, TableWishes
from schema_store.versions import SchemaVersions

NOW = datetime(2026, 11, 21, tzinfo=UTC)
A, B = TableId("a" * 32), TableId("b" * 32)


def at(increment: int) -> Position:
    return Position(ClusterTime(100, increment))


def ddl(increment: int, type: DdlType, coll: str, id: TableId | None = None, **more: Any) -> DdlEvent:
    return DdlEvent(position=at(increment), type=type, db="shop", table=TableName("shop", coll), id=id, **more)


def table(id: TableId, coll: str, kind: TableKind = TableKind.COLLECTION) -> TableSchema:
    return TableSchema(id=id, name=TableName("shop", coll), kind=kind, valid_from=at(1))


class Checkpoints:
    def __init__(
        self, places: Mapping[TableId, Position], failed: Mapping[TableId, ErrorReport] = MappingProxyType({})
    ) -> None:
        self._places = places
        self._failed = failed

    def of(self, table: TableId) -> Position | None:
        return self._places.get(table)

    def least(self, but: AbstractSet[TableId] = frozenset()) -> Position | None:
        return min((place for table, place in self._places.items() if table not in but), default=None)

    def obeys(self, table: TableId, stop_rev: int) -> bool:
        return True

    def failed(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return [(table, NodeId("n1"), error) for table, error in self._failed.items()]

    def retried(self, run: int) -> Iterable[tuple[TableId, NodeId, ErrorReport]]:
        return []


class Feed:
    """One changefeed at rest at 5, with the given tables; `decide` returns an owner's decision for the given inputs."""

    def __init__(self, *tables: TableSchema, **configuration: Any) -> None:
        fields = {
            "id": "f",
            "source": "mongodb://s",
            "sink": "mongodb://t",
            "filter": {"tables": ["shop.*", "!shop.private"]},
        }
        self.configuration = Configuration.parse(fields | configuration)
        self.classifier = DdlClassifier(
            filter=self.configuration.filter, routes=self.configuration.routes, background_indexes=True
        )
        self.status = ChangefeedStatus(checkpoint=at(5), resolved=at(5), run=1, info_version=1, epoch=1)
        self.tip = SchemaVersions.of(tables)
        self.records: dict[Position, DdlRecord] = {}
        self.leaves_stopped = False
        self.room = MOST_BYTES

    def decide(
        self,
        arrived: Sequence[DdlEvent] = (),
        resolved: int = 20,
        places: Mapping[TableId, Position] | None = None,
        *,
        executions: Mapping[Position, DdlProgress] | None = None,
        barrier: Barrier | None = None,
        copying: bool = False,
        errors: Sequence[ErrorReport] = (),
        sightings: Sightings | None = None,
        watching: bool = True,
        now: datetime = NOW,
        wishes: TableWishes | None = None,
        failed: Mapping[TableId, ErrorReport] = MappingProxyType({}),
        reports: Sequence[PositionReport] = (),
        beside: AbstractSet[TableId] = frozenset(),
        horizon: int | None = None,
        entered: Mapping[tuple[Position, TableId | None], Document | SluiceError] = MappingProxyType({}),
        node_errors: Sequence[ErrorReport] = (),
        history: ShardedHistory | None = None,
        holding: bool = False,
    ) -> Decision:
        state = ChangefeedState(
            epoch=1,
            info=ChangefeedInfo(configuration=self.configuration, created_at=NOW, leaves_stopped=self.leaves_stopped),
            status=self.status,
            barrier=barrier,
            records=self.records,
            reports=reports,
            node_errors=node_errors,
            wishes=wishes or TableWishes(),
            beside=beside,
            checkpoints=cast("TableProgress", Checkpoints(places or {}, failed)),
            tip=self.tip,
            arrived=arrived,
            resolved=at(resolved),
            holding=holding,
            room=self.room,
            horizon=None if horizon is None else at(horizon),
            executions=executions or {},
            copying=copying,
            entered=entered,
            history=history,
            errors=errors,
            sightings=sightings or Sightings(),
            watching=watching,
        )
        return decide(state, self.classifier, now=now, monotonic=0.0, random=Random(1))

    def knows(self, event: DdlEvent, state: DdlState = DdlState.PENDING) -> DdlRecord:
        record = self.classifier.classify(event, self.tip, NOW)
        assert record is not None
        self.records[event.position] = replace(record, state=state)
        self.tip = self.tip.apply(record.event)
        return self.records[event.position]


def barrier_of(decision: Decision) -> Barrier:
    [action] = [action for action in decision.actions if isinstance(action, PublishBarrier)]
    return action.barrier


def status_of(decision: Decision) -> ChangefeedStatus:
    [action] = [action for action in decision.actions if isinstance(action, PublishStatus)]
    return action.status


def test_a_ddl_is_recorded_before_the_barrier_passes_it() -> None:
    decision = Feed(table(A, "a")).decide([ddl(11, DdlType.DROP, "a", A)], places={A: at(5)})
    kinds = [type(action) for action in decision.actions]
    assert kinds.index(RecordDdls) < kinds.index(PublishBarrier)
    assert barrier_of(decision).held == {A: at(11)}


def test_the_checkpoint_of_before_is_kept_while_a_table_is_behind_it() -> None:
    """Of a table that begins there, or whose new node has not reported yet."""
    feed = Feed(table(A, "a"))
    feed.status = replace(feed.status, checkpoint=at(9))
    assert status_of(feed.decide(places={A: at(7)})).checkpoint == at(9)


def test_a_ddl_is_not_lost_when_the_owner_dies_after_the_checkpoint_reached_it() -> None:
    """Only the DDL's record remains; the watch of the next owner begins past it."""
    feed = Feed(table(A, "a"))
    feed.knows(ddl(11, DdlType.DROP, "a", A))
    feed.status = replace(feed.status, checkpoint=at(10), resolved=at(20))
    decision = feed.decide(places={A: at(11)}, barrier=Barrier(epoch=0, position=at(20), held={A: at(11)}))
    assert "Observe" in [type(action).__name__ for action in decision.actions]
    assert status_of(decision).checkpoint == at(11)


def test_a_change_of_options_that_another_watch_shows_at_another_place_is_recorded_once() -> None:
    """On a cluster it is shown at its coordinator's end by a watch that begins between two shards' entries."""
    feed = Feed(table(A, "a"))
    off = partial(ddl, type=DdlType.MODIFY, coll="a", id=A, description=Document.of({"validationLevel": "off"}))
    feed.knows(off(11))
    feed.knows(ddl(14, DdlType.DROP, "a", A))
    seen = [off(12), ddl(14, DdlType.DROP, "a", A), ddl(15, DdlType.CREATE, "b", B)]
    decision = feed.decide(seen, places={A: at(5)})
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    assert [record.event.type for record in recorded.records] == [DdlType.CREATE]


def test_indexes_that_another_watch_shows_together_at_another_place_are_recorded_once() -> None:
    """On a cluster, one that does not know the owners of a UUID shows them at the table's next UUID."""
    feed = Feed(table(A, "a"))
    built = partial(ddl, type=DdlType.CREATE_INDEXES, coll="a", id=A)
    feed.knows(built(11, description=indexes("f")))
    feed.knows(built(12, description=indexes("g")))
    feed.knows(ddl(15, DdlType.DROP, "a", A))
    both, another = built(13, description=indexes("f", "g")), built(14, description=indexes("f", "h"))
    assert not any(isinstance(action, RecordDdls) for action in feed.decide([both], places={A: at(5)}).actions)
    [recorded] = [each for each in feed.decide([another], places={A: at(5)}).actions if isinstance(each, RecordDdls)]
    [record] = recorded.records
    assert record.refused is not None
    assert "recorded after" in record.refused.message


def refused_at(decision: Decision) -> DdlRecord:
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    [record] = [record for record in recorded.records if record.refused is not None]
    return record


def test_what_does_not_fit_what_is_known_of_a_table_stops_that_table_alone() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    misfit = ddl(11, DdlType.MODIFY, "a", A, description=Document.of({"index": {"name": "gone", "hidden": True}}))
    more = ddl(12, DdlType.CREATE_INDEXES, "b", B, description=indexes("x"))
    record = refused_at(feed.decide([misfit, more], places={A: at(5), B: at(5)}))
    assert (record.event.type, record.position, set(record.scope.tables)) == (DdlType.UNKNOWN, at(11), {A})
    assert "changes index 'gone' of shop.a" in record.refused.message if record.refused else ""
    assert "leave them out (filter.tables)" in record.refused.message if record.refused else ""
    feed.records[at(11)] = record
    feed.tip = feed.tip.apply(record.event)
    going_on = feed.decide([more], places={A: at(11), B: at(5)})
    [mark] = [action for action in going_on.actions if isinstance(action, Mark)]
    assert mark.table == A
    assert barrier_of(going_on).held == {A: at(11)}
    assert not any(isinstance(action, Observe) and action.record is record for action in going_on.actions)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (
            ddl(11, DdlType.UNKNOWN, "a", A, description=Document.of({"teleport": "a"})),
            "{'teleport': 'a'}, which cannot be skipped",
        ),
        (
            ddl(11, DdlType.UNKNOWN, "a", description=Document.of({"teleport": "a"})),
            "{'teleport': 'a'}, which cannot be skipped",
        ),
        (ddl(11, DdlType.RESHARD_COLLECTION, "a", A, description=Document.of({"reshardUUID": "c" * 32})), "c" * 32),
        (ddl(11, DdlType.MODIFY, "a", A, description=Document.of({"timeseries": {"granularity": "years"}})), "years"),
        (ddl(11, DdlType.DROP_INDEXES, "a", A, description=Document.of({"keys": 1})), "KeyError('indexes')"),
    ],
)
def test_what_cannot_be_followed_stops_the_table_that_it_names_alone(event: DdlEvent, said: str) -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    record = refused_at(feed.decide([event], places={A: at(5), B: at(5)}))
    assert (record.event.type, set(record.scope.tables)) == (DdlType.UNKNOWN, {A})
    assert record.refused is not None
    assert said in record.refused.message
    assert "leave them out (filter.tables)" in record.refused.message


def test_what_has_a_name_whose_ddl_was_missed_waits_for_a_user_and_nothing_else_does() -> None:
    feed = Feed(table(A, "a"))
    missed = ErrorReport.of(TableUnknown("no DDL of shop.stray").about(view_id(TableName("shop", "stray"))), NOW)
    decision = feed.decide([ddl(15, DdlType.DROP, "a", A)], places={A: at(5)}, node_errors=[missed])
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    stray, dropped = recorded.records
    assert (stray.position, stray.event.type, stray.event.table) == (at(6), DdlType.UNKNOWN, TableName("shop", "stray"))
    assert not stray.scope.tables
    assert stray.scope.names == {TableName("shop", "stray")}
    assert stray.refused is not None
    assert (stray.refused.code, "leave them out (filter.tables)" in stray.refused.message) == (
        "invariant_violated",
        True,
    )
    assert (dropped.event.type, dropped.refused) == (DdlType.DROP, None)
    feed.records[stray.position] = stray
    again = feed.decide([], places={A: at(5)}, node_errors=[missed])
    assert not [action for action in again.actions if isinstance(action, RecordDdls)]
    status = next(action.status for action in again.actions if isinstance(action, PublishStatus))
    assert status.lifecycle.state is State.WARNING
    quiet = Feed(table(A, "a")).decide([], resolved=5, places={A: at(5)}, node_errors=[missed])
    assert quiet.lacks_place


def test_a_table_that_enters_and_that_no_record_can_describe_stays_out_and_waits_for_a_user() -> None:
    feed = Feed(table(A, "a"))
    entering = ddl(15, DdlType.RENAME, "private", B, renamed_to=TableName("shop", "b"))
    found: dict[tuple[Position, TableId | None], Document | SluiceError] = {(at(15), B): SourceUnsupported("no UTF-8")}
    decision = feed.decide([entering, ddl(16, DdlType.DROP, "a", A)], places={A: at(5)}, entered=found)
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    refused, dropped = recorded.records
    assert (refused.event.type, set(refused.scope.apart), set(refused.scope.tables)) == (DdlType.UNKNOWN, {B}, set())
    assert refused.refused is not None
    assert "no UTF-8" in refused.refused.message
    assert "no UTF-8" in not_explained(replace(refused, refused=None)), "tried again, it says why as well"
    assert dropped.event.type is DdlType.DROP


def test_a_command_that_no_release_knows_and_that_names_no_table_stops_those_of_its_database() -> None:
    bank = TableId("c" * 32)
    feed = Feed(
        table(A, "a"),
        TableSchema(id=bank, name=TableName("bank", "c"), valid_from=at(1)),
        filter={"tables": ["shop.*", "bank.*", "empty.*"]},
    )
    unknown = DdlEvent(
        position=at(11), type=DdlType.UNKNOWN, db="shop", description=Document.of({"teleportDatabase": 1})
    )
    nothing = replace(unknown, position=at(10), db="empty")
    record = refused_at(feed.decide([nothing, unknown], places={A: at(5), bank: at(5)}))
    assert (record.position, set(record.scope.tables)) == (at(11), {A})


def test_a_table_under_a_name_that_another_one_has_does_not_begin_and_both_wait() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    record = refused_at(feed.decide([ddl(11, DdlType.CREATE, "a", TableId("c" * 32))], places={A: at(5), B: at(5)}))
    assert (record.scope.tables, record.scope.apart) == (frozenset({A}), frozenset({TableId("c" * 32)}))
    assert record.scope.names == {TableName("shop", "a")}


def test_a_definition_for_which_etcd_has_no_room_stops_its_table_alone() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    large = Document.of({"validator": {"x": "x" * LARGE_BYTES}})
    changes = [ddl(11, DdlType.MODIFY, "a", A, description=large), ddl(12, DdlType.MODIFY, "b", B, description=large)]
    feed.room = len(large.raw)
    decision = feed.decide(changes, places={A: at(5), B: at(5)})
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    fits, refused = recorded.records
    assert (fits.event.description, fits.refused) == (large, None)
    assert (set(refused.scope.tables), refused.event.description.raw) == ({B}, Document.of({}).raw)
    assert refused.refused is not None
    assert refused.refused.code == "definitions_too_large"
    assert "modify shop.b at 100.12: found definitions of 65,5" in refused.refused.message


def test_a_misfit_is_forgotten_with_its_table() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    misfit = ddl(11, DdlType.MODIFY, "a", A, description=Document.of({"index": {"name": "gone", "hidden": True}}))
    feed.records[at(11)] = refused_at(feed.decide([misfit], places={A: at(5), B: at(5)}))
    feed.knows(ddl(13, DdlType.DROP, "a", A))
    ending = feed.decide(places={A: at(11), B: at(5)}, barrier=Barrier(epoch=1, position=at(20)))
    [released] = [action for action in ending.actions if isinstance(action, ReleaseDdls)]
    assert [(record.position, record.state) for record in released.records] == [(at(11), DdlState.SKIPPED)]


def test_all_views_are_dropped_though_the_owner_dies_between_two_of_their_records() -> None:
    views = [table(view_id(TableName("shop", coll)), coll, TableKind.VIEW) for coll in ("v", "w")]
    feed = Feed(table(A, "a"), *views)
    dropped = replace(ddl(11, DdlType.DROP, "system.views", B), position=Position(at(11).ts, "00000000"))

    def decided() -> list[RecordDdls]:
        return [each for each in feed.decide([dropped], places={A: at(5)}).actions if isinstance(each, RecordDdls)]

    [first] = decided()
    assert [str(record.event.table) for record in first.records] == ["shop.v", "shop.w"]
    for number, record in enumerate(first.records):
        [rest] = decided()
        assert rest.records == first.records[number:]
        feed.records[record.position] = record
        feed.tip = feed.tip.apply(record.event)
    assert decided() == []


def test_of_indexes_that_a_table_may_have_had_those_are_recorded_that_its_schema_lacks() -> None:
    """On a cluster, resharding gives an index of some owners to all. A watch that begins after it cannot tell it from an index of the whole table."""
    feed = Feed(table(A, "a"))
    built = partial(ddl, type=DdlType.CREATE_INDEXES, coll="a", id=A)
    presumed = Document.of(indexes("f", "g", "h").decode() | {"presumed": ["f", "g"]})
    feed.knows(built(11, description=indexes("f")))
    [recorded] = [
        each for each in feed.decide([built(13, description=presumed)]).actions if isinstance(each, RecordDdls)
    ]
    assert [record.event.description for record in recorded.records] == [indexes("g", "h")]


def test_of_indexes_that_a_table_may_have_had_nothing_is_recorded_if_its_schema_has_them_or_does_not_know_it() -> None:
    """Also one that was dropped afterwards: the schema of that position counts."""
    feed = Feed(table(A, "a"))
    presumed = Document.of(indexes("f").decode() | {"presumed": ["f"]})
    feed.knows(ddl(11, DdlType.CREATE_INDEXES, "a", A, description=indexes("f")))
    feed.knows(ddl(15, DdlType.DROP_INDEXES, "a", A, description=indexes("f")))
    seen = [ddl(13, DdlType.CREATE_INDEXES, name, id, description=presumed) for name, id in (("a", A), ("b", B))]
    assert not any(isinstance(action, RecordDdls) for action in feed.decide(seen, places={A: at(5)}).actions)


def indexes(*names: str) -> Document:
    return Document.of({"indexes": [{"v": 2, "key": {name: 1}, "name": name} for name in names]})


def test_a_change_of_options_that_comes_again_is_recorded_again() -> None:
    feed = Feed(table(A, "a"))
    off = partial(ddl, type=DdlType.MODIFY, coll="a", id=A, description=Document.of({"validationLevel": "off"}))
    feed.knows(off(11))
    decision = feed.decide([off(11), off(12)], places={A: at(5)})
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    assert [record.position for record in recorded.records] == [at(12)]


def test_a_new_epoch_publishes_the_barrier_anew() -> None:
    feed = Feed()
    assert barrier_of(feed.decide(barrier=Barrier(epoch=0, position=at(20)))).epoch == 1


def test_an_event_of_a_filtered_out_table_is_no_ddl_of_this_changefeed() -> None:
    decision = Feed().decide([ddl(11, DdlType.CREATE, "private", A)])
    assert not any(isinstance(action, RecordDdls) for action in decision.actions)
    assert barrier_of(decision) == Barrier(epoch=1, position=at(20))


def test_nothing_passes_a_table_of_which_nothing_is_known_yet() -> None:
    rename = ddl(11, DdlType.RENAME, "private", A, renamed_to=TableName("shop", "a"))
    later = ddl(12, DdlType.CREATE, "b", B)
    decision = Feed().decide([rename, later])
    assert LookUp(rename) in decision.actions
    assert decision.waiting == (rename, later)
    assert barrier_of(decision).position == at(11)


def test_a_flood_of_ddl_is_recorded_in_parts_and_the_barrier_waits_for_the_rest() -> None:
    creates = [ddl(10 + n, DdlType.CREATE, f"t{n}", TableId(f"{n:032x}")) for n in range(1_200)]
    decision = Feed().decide(creates, resolved=2_000)
    [recorded] = [action for action in decision.actions if isinstance(action, RecordDdls)]
    assert len(recorded.records) == 500
    assert barrier_of(decision).position == creates[500].position
    assert decision.waiting == tuple(creates[500:])


def test_many_ddls_that_are_done_at_once_are_released_in_parts_of_which_each_keeps_the_gates_of_the_rest() -> None:
    tables = [table(TableId(f"{n:032x}"), f"t{n:03}") for n in range(100)]
    feed = Feed(*tables)
    drops = [feed.knows(ddl(10 + n, DdlType.DROP, t.name.coll, t.id), DdlState.EXECUTING) for n, t in enumerate(tables)]
    places = {t.id: drop.position for t, drop in zip(tables, drops, strict=True)}
    decision = feed.decide(resolved=200, places=places, executions={drop.position: Applied("") for drop in drops})
    parts = [action for action in decision.actions if isinstance(action, ReleaseDdls)]
    assert [len(part.records) for part in parts] == [48, 48, 4], "one transaction holds no more"
    known = dict(feed.records)
    for part in parts:
        known |= {record.position: record for record in part.records}
        still_open = {t.id for t, drop in zip(tables, drops, strict=True) if known[drop.position].open}
        assert part.barrier.holding(known.values()).held.keys() == still_open


def test_of_many_ddls_that_may_run_some_are_begun_and_the_rest_when_these_are_done() -> None:
    tables = [table(TableId(f"{n:032x}"), f"t{n:03}") for n in range(600)]
    feed = Feed(*tables)
    drops = [feed.knows(ddl(10 + n, DdlType.DROP, t.name.coll, t.id)) for n, t in enumerate(tables)]
    places = {t.id: drop.position for t, drop in zip(tables, drops, strict=True)}
    begun = [action for action in feed.decide(resolved=999, places=places).actions if isinstance(action, Observe)]
    assert [job.record.position for job in begun] == [drop.position for drop in drops[:512]]
    running = {job.record.position: Running() for job in begun}
    more = feed.decide(resolved=999, places=places, executions=running)
    assert [job.record.position for job in more.actions if isinstance(job, Observe)] == [
        drop.position for drop in drops[512:]
    ]


def test_a_ddl_that_cannot_be_done_is_skipped_or_waits_for_a_user_and_the_changefeed_goes_on() -> None:
    unsupported = Failed(DdlUnsupported("not sharded"), NOW, retry_deadline=0.0)
    for policy in ("skip", "fail"):
        feed = Feed(table(A, "a"), ddl={"unsupported": policy})
        feed.knows(ddl(11, DdlType.DROP, "a", A))
        decision = feed.decide(places={A: at(11)}, executions={at(11): unsupported})
        released = [action for action in decision.actions if isinstance(action, ReleaseDdls)]
        refused = [action for action in decision.actions if isinstance(action, Refuse)]
        assert (len(released), len(refused)) == ((1, 0) if policy == "skip" else (0, 1))
        assert status_of(decision).lifecycle.state is State.NORMAL


def test_a_ddl_that_is_tried_again_for_hours_warns_and_stops_no_other_table() -> None:
    feed = Feed(table(A, "a"), table(B, "b"))
    feed.knows(ddl(11, DdlType.DROP, "a", A))
    busy = Failed(SinkUnavailable("an index is being built"), NOW - timedelta(hours=3), retry_deadline=0.0)
    for since in (None, NOW - timedelta(hours=3)):
        state = State.NORMAL if since is None else State.WARNING
        feed.status = replace(feed.status, checkpoint=at(11), lifecycle=Lifecycle(state=state, since_at=since))
        decision = feed.decide(places={A: at(11), B: at(20)}, executions={at(11): busy})
        assert status_of(decision).lifecycle.state is State.WARNING
        assert barrier_of(decision).of(B) == at(20)


def test_what_a_majority_that_stands_still_explains_is_not_told_and_makes_no_back_off() -> None:
    feed = Feed(table(A, "a"))
    long_ago = NOW - timedelta(hours=3)
    stalled = ErrorReport.of(SourceMajorityStalled("it stands still"), NOW)
    timed_out = ErrorReport.of(SourceUnavailable("it did not answer in time"), NOW)
    elsewhere = ErrorReport.of(SinkUnavailable("the target is away"), NOW)
    feed.status = replace(feed.status, lifecycle=Lifecycle(state=State.WARNING, error=timed_out, since_at=long_ago))
    lifecycle = status_of(feed.decide(resolved=5, errors=[timed_out, stalled])).lifecycle
    assert (lifecycle.state, lifecycle.error) == (State.WARNING, stalled)
    lifecycle = status_of(feed.decide(resolved=5, errors=[stalled, elsewhere])).lifecycle
    assert (lifecycle.state, lifecycle.error) == (State.PENDING, elsewhere)


def test_a_refused_ddl_that_the_filter_ignores_from_now_on_is_released() -> None:
    rule = {"tables": ["shop.a"], "ignore": ["createIndexes"]}
    feed = Feed(table(A, "a"), filter={"tables": ["shop.*"], "events": [rule]})
    unique = Document.of({"indexes": [{"v": 2, "key": {"x": 1}, "name": "x_1", "unique": True}]})
    wanted_before = Feed(table(A, "a")).knows(ddl(11, DdlType.CREATE_INDEXES, "a", A, description=unique))
    refusal = ErrorReport.of(DdlRefused("duplicate key"), NOW)
    feed.records[at(11)] = replace(wanted_before, refused=refusal)
    feed.status = replace(feed.status, lifecycle=replace(feed.status.lifecycle, state=State.STOPPED))
    held = Barrier(epoch=1, position=at(20), held={A: at(11)})
    decision = feed.decide(places={A: at(11)}, barrier=held)
    [released] = [action for action in decision.actions if isinstance(action, ReleaseDdls)]
    assert released.records[0].state is DdlState.SKIPPED
    feed.records[at(11)] = released.records[0]
    again = feed.decide(places={A: at(11)}, barrier=released.barrier)
    assert [action for action in again.actions if isinstance(action, ReleaseDdls)] == []


def test_a_dropped_database_takes_its_views_along() -> None:
    view = view_id(TableName("shop", "v"))
    feed = Feed(table(A, "a"), table(view, "v", TableKind.VIEW))
    event = DdlEvent(position=at(11), type=DdlType.DROP_DATABASE, db="shop")
    scope = feed.knows(event).scope
    assert (set(scope.tables), set(scope.apart)) == ({A}, {view})


def test_the_barrier_ends_at_the_target_and_the_changefeed_when_all_tables_are_there() -> None:
    feed = Feed(table(A, "a"), target="100.15")
    assert barrier_of(feed.decide(places={A: at(5)})).position == at(15)
    there = feed.decide(places={A: at(15)}, barrier=Barrier(epoch=1, position=at(15)))
    assert status_of(there).lifecycle.state is State.FINISHED


def test_a_ddl_that_is_too_new_for_the_delay_is_neither_recorded_nor_passed() -> None:
    feed = Feed(table(A, "a"))
    drop = ddl(11, DdlType.DROP, "a", A)
    waiting = feed.decide([drop], places={A: at(5)}, resolved=20, horizon=9)
    assert barrier_of(waiting).position == at(9)
    assert waiting.waiting == (drop,)
    assert not any(isinstance(action, RecordDdls) for action in waiting.actions)
    due = feed.decide(waiting.waiting, places={A: at(9)}, resolved=30, horizon=15)
    assert (barrier_of(due).position, barrier_of(due).held) == (at(15), {A: at(11)})


def test_a_delay_that_begins_takes_nothing_back() -> None:
    reached = Barrier(epoch=1, position=at(20))
    decision = Feed(table(A, "a")).decide(places={A: at(20)}, resolved=21, barrier=reached, horizon=9)
    assert not any(isinstance(action, PublishBarrier) for action in decision.actions)


def test_a_copy_goes_on_beyond_the_target_to_its_end_and_the_changefeed_ends_there() -> None:
    """The chunks were read after the target: the table is not consistent until the barrier has passed them."""
    feed = Feed(table(A, "a"), target="100.15")
    beyond = feed.decide(places={A: at(5)}, resolved=30, copying=True)
    assert barrier_of(beyond).position == at(30)
    later = Barrier(epoch=1, position=at(30))
    copied = feed.decide(places={A: at(20)}, resolved=40, barrier=later)
    assert not any(isinstance(action, PublishBarrier) for action in copied.actions)
    assert status_of(copied).lifecycle.state is State.NORMAL
    assert status_of(feed.decide(places={A: at(30)}, resolved=40, barrier=later)).lifecycle.state is State.FINISHED


def test_a_ddl_beyond_the_target_is_kept_for_a_copy_that_comes_before_it() -> None:
    feed = Feed(table(A, "a"), target="100.15")
    drop = ddl(18, DdlType.DROP, "a", A)
    decision = feed.decide([drop], places={A: at(5)})
    assert decision.waiting == (drop,)
    assert barrier_of(feed.decide(decision.waiting, places={A: at(5)}, copying=True)).held == {A: at(18)}


def seconds(count: float) -> datetime:
    return NOW + timedelta(seconds=count)


def seen(*pairs: tuple[int, float]) -> Sightings:
    return Sightings(tuple(Sighting(at(end), seconds(moment)) for end, moment in pairs))


def lag_of(decision: Decision, moment: float) -> float:
    lag = status_of(decision).lag(seconds(moment))
    assert lag is not None
    return lag.total_seconds()


def report(**more: Any) -> PositionReport:
    return PositionReport(run=1, barrier_rev=1, assignment_rev=1, checkpoint=at(14), **more)


def test_a_changefeed_lags_by_the_age_of_what_was_committed_after_its_checkpoint() -> None:
    feed = Feed(table(A, "a"))
    source = seen((5, 0), (11, 7), (14, 8), (15, 9))
    decision = feed.decide(places={A: at(14)}, sightings=source, reports=[report(flowing=True)], now=seconds(9))
    assert lag_of(decision, 9) == lag_of(decision, 11) == 1
    assert lag_of(decision, 13) == 5


def test_what_arrives_while_no_row_flows_is_no_lag_until_it_stays() -> None:
    """The source's no-op, and rows of other tables: they are read in a moment, and no row of this changefeed is among them."""
    feed = Feed(table(A, "a"))

    def lag(moment: float) -> float:
        source = seen((5, 0), (14, 8), (15, moment))
        return lag_of(feed.decide(places={A: at(14)}, sightings=source, now=seconds(moment)), moment)

    assert [lag(8.5), lag(12.9)] == [0, 0]
    assert [lag(13), lag(20)] == [5, 12]


def test_a_table_in_copy_lags_since_its_copy_began() -> None:
    feed = Feed(table(A, "a"))
    feed.status = replace(feed.status, current_at=seconds(0))
    copying = report(copies={A: CopyProgress()})
    decision = feed.decide(places={A: at(5)}, sightings=seen((5, 0), (5, 9)), reports=[copying], now=seconds(9))
    assert lag_of(decision, 9) == 9


def test_a_changefeed_that_has_all_that_the_source_had_lags_by_nothing() -> None:
    feed = Feed(table(A, "a"))
    decision = feed.decide(places={A: at(15)}, sightings=seen((5, 0), (15, 9)), now=seconds(9))
    assert lag_of(decision, 9) == lag_of(decision, 20) == 0


def test_what_nobody_has_confirmed_for_long_is_not_taken_for_granted() -> None:
    feed = Feed(table(A, "a"))
    decision = feed.decide(places={A: at(15)}, sightings=seen((15, 9)), now=seconds(9))
    assert lag_of(decision, 40) == 31


def test_a_source_that_cannot_be_seen_may_have_more() -> None:
    feed = Feed(table(A, "a"))
    decision = feed.decide(places={A: at(15)}, sightings=seen((15, 9)), watching=False, now=seconds(12))
    assert lag_of(decision, 12) == 3


def test_a_silent_source_is_confirmed_now_and_then_and_not_at_each_tick() -> None:
    feed = Feed(table(A, "a"))
    feed.status = status_of(feed.decide(places={A: at(15)}, sightings=seen((15, 0))))
    feed.status = replace(feed.status, resolved=at(20))

    def told(moment: float) -> bool:
        decision = feed.decide(places={A: at(15)}, sightings=seen((15, moment)), now=seconds(moment))
        return any(isinstance(action, PublishStatus) for action in decision.actions)

    assert [told(moment) for moment in (0.1, 1, 10)] == [False] * 3
    assert told(10.1)


def test_a_checkpoint_older_than_all_that_this_owner_has_seen_lags_by_the_sources_own_time() -> None:
    feed = Feed(table(A, "a"))
    now = at(5).ts.to_datetime() + timedelta(hours=1)
    decision = feed.decide(places={A: at(6)}, sightings=Sightings((Sighting(at(15), now),)), now=now)
    assert status_of(decision).lag(now) == timedelta(hours=1)


def test_a_new_owner_goes_on_from_what_the_last_one_knew() -> None:
    feed = Feed(table(A, "a"))
    feed.status = replace(feed.status, current_at=seconds(0), behind=False)
    decision = feed.decide(places={A: at(6)}, sightings=seen((15, 8)), now=seconds(8))
    assert lag_of(decision, 8) == 8


def test_a_tables_trouble_is_its_own() -> None:
    refusal = DdlRefused("duplicate key")
    feed = Feed(table(A, "a"), table(B, "b"))
    feed.knows(ddl(11, DdlType.DROP, "a", A))
    refused = {at(11): Failed(refusal, NOW, retry_deadline=0.0)}
    rejected = {B: ErrorReport.of(RowRejected("no"), NOW)}
    places = {A: at(11), B: at(20)}
    for trouble in ({"executions": refused}, {"failed": rejected}):
        new = feed.decide(places=places, **trouble)
        assert status_of(new).lifecycle.state is State.NORMAL
        assert [action for action in new.actions if isinstance(action, Refuse | Mark)]


def test_a_changefeed_finishes_without_its_stopped_tables_only_if_a_user_says_so() -> None:
    feed = Feed(table(A, "a"), table(B, "b"), target="100.20")
    stopped = Straggler(at=at(7), stopped=True, since=NOW)
    wishes = TableWishes(stragglers={A: StoredStraggler(stopped, 7)}, replicated={A, B})
    places = {A: at(7), B: at(20)}
    feed.status = replace(feed.status, resolved=at(20))
    assert status_of(feed.decide(places=places, wishes=wishes)).lifecycle.state is State.NORMAL
    feed.leaves_stopped = True
    assert status_of(feed.decide(places=places, wishes=wishes)).lifecycle.state is State.FINISHED
    behind = replace(wishes, stragglers={A: StoredStraggler(replace(stopped, stopped=False), 7)})
    assert status_of(feed.decide(places=places, wishes=behind)).lifecycle.state is State.NORMAL, "it catches up first"


def test_the_routes_that_were_obeyed_are_recorded_once_and_do_not_follow_the_configuration() -> None:
    """A release before this one recorded none."""
    rules = {"routes": [{"from": "shop.*", "to": "dr.*"}]}
    feed = Feed(**rules)
    assert status_of(feed.decide()).routes == feed.configuration.routes
    feed.status = replace(feed.status, routes=Routes())
    assert status_of(feed.decide()).routes == Routes()


_TAKING = {"routes": [{"from": "shop.x", "to": "shop.b"}]}
_TO_TAKEN = ddl(11, DdlType.RENAME, "a", A, renamed_to=TableName("shop", "x"))


def test_a_table_that_has_reached_a_taken_name_is_stopped_and_the_other_goes_on() -> None:
    feed = Feed(table(A, "a"), table(B, "b"), **_TAKING)
    record = feed.classifier.classify(_TO_TAKEN, feed.tip, NOW)
    assert record is not None
    feed.records[record.position] = record
    feed.tip = feed.tip.apply(record.event)
    wishes = TableWishes(replicated={A, B})
    decision = feed.decide(places={A: at(11), B: at(20)}, wishes=wishes)
    assert barrier_of(decision).held == {A: at(11)}
    [mark] = [action for action in decision.actions if isinstance(action, Mark)]
    assert (mark.table, mark.straggler.stopped, mark.straggler.at) == (A, True, at(11))
    assert mark.straggler.error == record.refused


def test_what_had_the_old_name_is_dropped_when_a_table_without_a_name_ends() -> None:
    feed = Feed(table(A, "a"), table(B, "b"), **_TAKING)
    for event in (_TO_TAKEN, ddl(13, DdlType.DROP, "x", A)):
        without_name = {A} if feed.records else set()
        record = feed.classifier.classify(event, feed.tip, NOW, without_name)
        assert record is not None
        feed.records[record.position] = record
        feed.tip = feed.tip.apply(record.event)
    stopped = StoredStraggler(Straggler(at=at(11), stopped=True, since=NOW), 7)
    wishes = TableWishes(stragglers={A: stopped}, replicated={A, B})
    decision = feed.decide(places={A: at(11), B: at(20)}, wishes=wishes)
    [observed] = [action.record for action in decision.actions if isinstance(action, Observe)]
    assert (observed.position, observed.drops, observed.refused) == (at(11), True, None)


@pytest.mark.parametrize(("renamed", "drops"), [(B, False), (A, True)])
def test_a_rename_is_a_drop_for_the_sake_of_its_own_table_only(renamed: TableId, drops: bool) -> None:
    """A is stopped and ends later. It has the target's table together with B."""
    names = {A: "a_o", B: "b_o"}
    feed = Feed(*(table(id, name) for id, name in names.items()), routes=[{"from": "shop.*_o", "to": "dr.all"}])
    feed.knows(ddl(11, DdlType.RENAME, names[renamed], renamed, renamed_to=TableName("shop", "sales")))
    feed.knows(ddl(13, DdlType.DROP, "sales" if renamed is A else "a_o", A))
    stopped = StoredStraggler(Straggler(at=at(7), stopped=True, since=NOW), 7)
    decision = feed.decide(places={A: at(7), B: at(11)}, wishes=TableWishes(stragglers={A: stopped}, replicated={A, B}))
    [observed] = [action.record for action in decision.actions if isinstance(action, Observe)]
    assert (observed.position, observed.drops) == (at(11), drops)


def test_a_refused_ddl_that_is_released_is_not_tried_again_though_a_user_asks_for_it_at_that_moment() -> None:
    feed = Feed(table(A, "a"))
    collate = ddl(11, DdlType.MODIFY, "a", A, description=Document.of({"validationLevel": "off"}))
    feed.records[at(11)] = replace(feed.knows(collate), refused=ErrorReport.of(DdlRefused("no"), NOW))
    feed.knows(ddl(13, DdlType.DROP, "a", A))
    stopped = StoredStraggler(Straggler(at=at(11), stopped=True, since=NOW), 7)
    wishes = TableWishes(stragglers={A: stopped}, replicated={A}, requests={A: TableVerb.RESUME})
    actions = feed.decide(places={A: at(11)}, wishes=wishes).actions
    [released] = [action for action in actions if isinstance(action, ReleaseDdls)]
    assert [record.state for record in released.records] == [DdlState.SKIPPED]
    assert not any(isinstance(action, Resume) for action in actions)


def test_a_table_is_the_same_under_each_uuid_that_its_rows_get() -> None:
    feed, moved, again = Feed(table(A, "a")), TableId("d" * 32), TableId("e" * 32)
    events = [
        ddl(11, DdlType.NEW_UUID, "a", A, description=Document.of({"uuid": moved})),
        ddl(12, DdlType.NEW_UUID, "a", moved, description=Document.of({"uuid": again})),
        ddl(13, DdlType.DROP, "a", again),
    ]
    [record] = [action for action in feed.decide(events).actions if isinstance(action, RecordDdls)]
    assert [each.event.id for each in record.records] == [A, A, A]
    assert all(each.scope.tables == {A} for each in record.records)


def test_a_table_that_comes_back_under_another_uuid_keeps_it() -> None:
    """Its rows stand under it, and the versions from before it left the filter are dropped some day."""
    feed, moved = Feed(table(A, "a")), TableId("e" * 32)
    events = [
        ddl(11, DdlType.NEW_UUID, "a", A, description=Document.of({"uuid": moved})),
        ddl(12, DdlType.RENAME, "a", moved, renamed_to=TableName("shop", "private")),
        ddl(13, DdlType.RENAME, "private", moved, renamed_to=TableName("shop", "b")),
    ]
    definition = Document.of({"options": {}, "indexes": []})
    decision = feed.decide(events, places={A: at(5)}, entered={(at(13), A): definition})
    [recorded] = [action.records for action in decision.actions if isinstance(action, RecordDdls)]
    entered = recorded[-1].event
    assert entered.id == A
    assert entered.description.decode()["uuids"] == [moved]
