"""How a table is copied anew beside the running changefeed, by DDLs of Sluice's own. Pure.

    leave @P       the table ends; nothing changes at the target, and no row of it is written any more
    enter @P'      it begins again, with a copy into a table of Sluice's own (`Beside`); the target's table stands still, at P
    exchange @Q    once the copy has ended: the table is held at Q, has all that happened before, and takes the other's place by a rename

They are recorded like the source's DDLs, and all that holds for those holds for them: the barrier holds the table and no other, a crash after
any step is survived, a stopped table is not awaited by the DDL that ends it, a drop or a rename at the source comes before or after them.

Positions without a token belong to no event of the source, so DDLs of Sluice's own never take the place of one. They are chosen past the
published barrier and not past the first event that is not recorded yet:

    barrier 100.7, resolved 103.2, next event rename @102.1/8264      leave @100.8, enter @100.9 for one table, 100.10 and 100.11 for the next one

What no server renames, a time series, and what has no rows, a view, are made anew in place: `enter` drops the target's time series, and the
copy stands in its place; it replaces the view by one of the present definition. There is no exchange.

At a sink of messages there is nothing beside, and no exchange: `enter` becomes a message, behind which the copy stands. What a stopped
table had not sent is skipped, and the message says so.

A table that is lost is looked up in the source's catalog before: its DDLs were not recorded, or, if a shard of a cluster is gone, nobody has read
those that this shard alone has logged. Meanwhile nothing passes the published barrier. No table begins before the removal of a shard: a sink of messages tells
all changes since then beside the copy, and of a document that another shard told first, the delete by a shard that is gone would be missing.

No table is there before it knows of the DDL. A table in copy may stand at the barrier while its chunks are being read (`processor/copy/plan.py`),
which says nothing about a DDL there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration, OnOccupied
from changefeed.config.tables.filter import Disposition
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import InvariantError, SluiceError, TableUnknown
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import ErrorReport
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Scope
from changefeed.records.requests import TableVerb
from changefeed.table import (
    Beside,
    TableId,
    TableKind,
    TableName,
    TableSchema,
    beside_name,
    definition_of,
    name_of_view,
)
from owner.ddl.scope import DdlClassifier
from owner.ddl.stragglers import known_tables, nameless
from owner.decision.state import ChangefeedState, asked_about, bound_of, checkpoint_now, published
from schema_store.definition import enters
from schema_store.versions import SchemaVersions

_MOST = 32
"""Tables that begin in one decision."""


def own_ddls(state: ChangefeedState, classifier: DdlClassifier, now: datetime) -> OwnDdls | None:
    """None: there are none to be recorded."""
    missed = _missed(state)
    if not missed and not state.beside and TableVerb.RECOPY not in state.wishes.requests.values():
        return None
    ended, wanted = sorted(_to_exchange(state)), sorted(_to_begin(state)) if not state.holding else []
    if not missed and not ended and not wanted:
        return None
    own = OwnDdls(state, classifier, now)
    for table, error in sorted(missed.items()):
        if not own.miss(table, error):
            break
    for table in ended:
        if not own.exchange(table):
            break
    for table in wanted[:_MOST]:
        if not own.begin(table):
            break
    return own


class OwnDdls:
    """To be recorded before all events that have arrived. Its methods return False once nothing more can be recorded."""

    def __init__(self, state: ChangefeedState, classifier: DdlClassifier, now: datetime) -> None:
        self.records: list[DdlRecord] = []
        self.answers: set[TableId] = set()
        """The tables whose users' requests are answered by it."""
        self.unknown: DdlEvent | None = None
        """A table that has to be looked up. Nothing may be recorded after `records` until it is."""
        self.lacks_place = False
        """One has no place yet: the source has written nothing past the published barrier."""
        self._state = state
        self._classifier = classifier
        self._now = now
        self._without_name = nameless(state.records.values()).keys()
        known_below, end = published(state.status, state.barrier), bound_of(state)
        new = (event.position for event in state.arrived if event.position not in state.records)
        first = next((position for position in new if position >= known_below), state.resolved)
        highest = min([first, state.resolved, *([end] if end else [])])
        self._free = places(max(known_below, _whole_from(state)), highest, state.records)
        self._source_is_quiet = highest == state.resolved

    def tip(self) -> SchemaVersions:
        tip = self._state.tip
        for record in self.records:
            tip = tip.apply(record.event) if record.event.type.own else tip
        return tip

    def miss(self, table: TableId, error: ErrorReport) -> bool:
        """What has the name was made by a DDL that was missed. Its rows are below the barrier, and are passed over once this is recorded."""
        at = next(self._free, None)
        self.lacks_place |= at is None and self._source_is_quiet
        if at is None:
            return False
        name = name_of_view(table)
        event = DdlEvent(position=at, type=DdlType.UNKNOWN, db=name.db, table=name, id=table)
        self.records.append(
            self._classifier.unexplained(event, self._state.tip, InvariantError(error.message), self._now)
        )
        return True

    def exchange(self, table: TableId) -> bool:
        tip = self._state.tip
        schema, at = tip.latest(table), next(self._free, None)
        self.lacks_place |= at is None and self._source_is_quiet
        if at is None or schema is None or schema.beside is None or at <= schema.valid_from:
            return False
        target = self._classifier.routes.target(schema.name)
        sharing = self._classifier.having(target, at, tip) - self._without_name
        self.records.append(exchanged(schema, schema.beside, target, sharing, at, self._now))
        return True

    def begin(self, table: TableId) -> bool:
        state = self._state
        schema, left, entered = state.tip.latest(table), next(self._free, None), next(self._free, None)
        self.lacks_place |= entered is None and self._source_is_quiet
        if left is None or entered is None or schema is None or left <= schema.valid_from:
            return False
        stored, place = state.wishes.stragglers.get(table), state.checkpoints.of(table)
        stands_at = min(left, place) if stored is not None and place is not None else left
        looked_up = EMPTY
        if _may_lack_ddl(state, table):
            question = _question(schema, entered)
            if asked_about(question) not in state.entered:
                self.unknown = question
                return False
            answer = state.entered[asked_about(question)]
            if isinstance(answer, SluiceError):
                return True
            looked_up = answer
        self.records += begun(
            schema,
            self._classifier.routes.target(schema.name),
            (left, entered),
            stands_at,
            self._now,
            looked_up=looked_up,
            as_messages=state.info.configuration.sink_traits.keeps_messages,
        )
        self.answers.add(table)
        return True


def _whole_from(state: ChangefeedState) -> Position:
    history = state.history or (state.barrier.history if state.barrier is not None else None)
    return Position(history.whole_from if history is not None else ClusterTime(0, 0))


def _may_lack_ddl(state: ChangefeedState, table: TableId) -> bool:
    """Of a table that is lost, since its DDLs are not recorded; with a shard, those that this shard alone has logged are lost, too."""
    stored = state.wishes.stragglers.get(table)
    return stored is not None and stored.lost


def _missed(state: ChangefeedState) -> Mapping[TableId, ErrorReport]:
    """Tables without a DDL that nodes met in this run, by the name, and that are not recorded yet."""
    met = {
        error.table: error for error in state.node_errors if error.code == TableUnknown.code and error.table is not None
    }
    if not met:
        return met
    recorded = (record.event for record in state.records.values() if record.open)
    names = {name for event in recorded if event.type is DdlType.UNKNOWN for name in (event.table, event.renamed_to)}
    return {table: error for table, error in met.items() if name_of_view(table) not in names}


def _to_begin(state: ChangefeedState) -> Iterator[TableId]:
    """The tables that users want copied anew and that can be. One that is about to be copied anew is not, a second time."""
    without_name = nameless(state.records.values())
    entering = {record.event.id for record in state.records.values() if record.open and enters(record.event)}
    for table, verb in state.wishes.requests.items():
        if verb is TableVerb.RECOPY and table not in without_name and table not in entering and possible(state, table):
            yield table


def _to_exchange(state: ChangefeedState) -> Iterator[TableId]:
    """Those that are up to date, and that no DDL is open of."""
    with_ddl = {table for record in state.records.values() if record.open for table in known_tables(record)}
    for table in state.beside - state.wishes.stragglers.keys() - with_ddl:
        at = state.checkpoints.of(table)
        if at is not None and at >= checkpoint_now(state):
            yield table


def impossible(state: ChangefeedState) -> frozenset[TableId]:
    """The tables that users want copied anew and that cannot be."""
    wanted = {table for table, verb in state.wishes.requests.items() if verb is TableVerb.RECOPY}
    return frozenset(wanted.difference(_to_begin(state))) if wanted else frozenset()


def possible(state: ChangefeedState, table: TableId) -> bool:
    schema = state.tip.latest(table)
    return schema is not None and not obstacle(schema, state.info.configuration)


def obstacle(table: TableSchema, configuration: Configuration) -> str:
    """Why the table cannot be copied anew beside the running changefeed. Empty: it can."""
    target = configuration.routes.target(table.name)
    if in_place(table) and configuration.sink_traits.keeps_messages:
        return f"is a {table.kind.value}; a sink of messages has its definition alone"
    if configuration.routes.may_share(table.name):
        return (
            f"shares {target} with other tables by the routes: a new {target} would lack their rows, and theirs cannot be told apart from those of "
            "this one; route every table to a name of its own"
        )
    if configuration.on_occupied is OnOccupied.KEEP and table.kind is not TableKind.VIEW:
        return f"may have rows at the target from before the changefeed (on_occupied: keep), which a new {target} would lack"
    return ""


def in_place(table: TableSchema) -> bool:
    """Whether it is made anew under its own name at the target."""
    return table.kind is not TableKind.COLLECTION


def places(barrier: Position, highest: Position, recorded: Iterable[Position]) -> Iterator[Position]:
    """Positions for DDLs of Sluice's own, ascending: past the barrier and past all that is recorded, up to `highest` with it."""
    ts = max([barrier.ts, *(position.ts for position in recorded)]).next()
    while Position(ts) <= highest:
        yield Position(ts)
        ts = ts.next()


def _question(table: TableSchema, at: Position) -> DdlEvent:
    """To the source's catalog: what the table is like there. It knows the table by its last UUID."""
    id = table.uuids[-1] if table.uuids else table.id
    return DdlEvent(position=at, type=DdlType.ENTER, db=table.name.db, table=table.name, id=id, renamed_to=table.name)


def begun(
    table: TableSchema,
    target: TableName,
    at: tuple[Position, Position],
    stands_at: Position,
    now: datetime,
    *,
    looked_up: Document = EMPTY,
    as_messages: bool = False,
) -> tuple[DdlRecord, DdlRecord]:
    """`stands_at`: how far the target's table is. The table of an earlier attempt is made anew. `looked_up`: its definition, if it is not as
    known. `as_messages`: into a sink of messages.

    Both come after all that is open of its name: a create that waits for a user knows no table.
    """
    if table.beside is not None:
        stands_at = table.beside.stands_at
    left, entered = at
    names = frozenset({target})
    under_its_name = as_messages or in_place(table)
    beside = None if under_its_name else Beside(name=beside_name(table.id, target), stands_at=stands_at)
    said: dict[str, Any] = {"inPlace": True} if in_place(table) else {}
    if as_messages and stands_at < left:
        said = {"skippedFrom": str(stands_at)}
    description = Document.of(definition_of(table, beside).decode() | looked_up.decode() | said)
    with_rows = frozenset({table.id}) if table.kind is not TableKind.VIEW else frozenset()
    leave = DdlRecord(
        event=DdlEvent(position=left, type=DdlType.LEAVE, db=table.name.db, table=table.name, id=table.id),
        scope=Scope(tables=with_rows, ended=with_rows, apart=frozenset({table.id}) - with_rows, names=names),
        disposition=Disposition.SCHEMA_ONLY,
        note="to be copied anew"
        + ("" if under_its_name else f"; {target} stands still until the copy takes its place"),
        seen_at=now,
    )
    enter = DdlRecord(
        event=DdlEvent(
            position=entered,
            type=DdlType.ENTER,
            db=table.name.db,
            table=table.name,
            id=table.id,
            description=description,
        ),
        scope=Scope(apart=frozenset({table.id}), names=names),
        disposition=Disposition.APPLY if beside is None else Disposition.SCHEMA_ONLY,
        note="" if beside is None else f"copied to {beside.name}",
        seen_at=now,
    )
    return leave, enter


def exchanged(
    table: TableSchema, beside: Beside, target: TableName, sharing: AbstractSet[TableId], at: Position, now: datetime
) -> DdlRecord:
    """`sharing`: the tables that have that name downstream. A rename may have brought it under a name that others have, too."""
    return DdlRecord(
        event=DdlEvent(position=at, type=DdlType.EXCHANGE, db=table.name.db, table=table.name, id=table.id),
        scope=Scope(tables=frozenset({table.id, *sharing}), names=frozenset({beside.name, target})),
        seen_at=now,
    )
