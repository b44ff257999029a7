"""`state_of`: the state of a decision, made of what etcd says, what the owner remembers, and what a tick has collected. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.status import ChangefeedStatus, LetterTotals
from owner.ddl.execution import DdlProgress
from owner.decision.state import ChangefeedState, horizon
from owner.etcd_view import OwnerView
from owner.owner_memory import OwnerMemory
from owner.source_watch import Watched, history_of
from owner.tables.wishes import TableWishes


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a tick has asked for, and `now`, in monotonic seconds."""

    source: Watched
    letters: LetterTotals | None
    executions: Mapping[Position, DdlProgress]
    room: int
    """For large definitions, in bytes."""
    sync_place: Position | None
    still: bool
    """No pipeline is running any more."""
    now: float


def state_of(
    known: OwnerView,
    status: ChangefeedStatus,
    memory: OwnerMemory,
    configuration: Configuration,
    epoch: int,
    collected: Collected,
) -> ChangefeedState:
    """`configuration`: as its tables were found."""
    tables, progress, watched = memory.tables, memory.progress, collected.source
    assert tables is not None, "expected a memory that follows etcd"
    return ChangefeedState(
        epoch=epoch,
        info=replace(known.info, configuration=status.as_found(known.info.configuration)),
        status=status,
        barrier=known.barrier,
        records=known.records,
        wishes=TableWishes(
            stragglers=known.stragglers,
            requests=known.requests,
            repairs=known.repairs.keys(),
            skips=known.skips,
            lost=watched.lost,
            lost_from_the_start=watched.lost_from_the_start,
            replicated=tables.replicated.keys(),
            processors={node for node, state in progress.nodes.items() if state.takes_tables},
            moving=known.moving,
        ),
        beside=tables.beside & known.copied,
        reports=[report for node, report in known.reports.items() if node in known.processors],
        node_errors=memory.standings.errors(progress.nodes, status.run, collected.now),
        checkpoints=progress,
        tip=tables.tip,
        arrived=memory.arrived,
        room=collected.room,
        resolved=watched.resolved,
        sync_place=collected.sync_place,
        history=memory.history and memory.history.after(history_of(known)).without(watched.gone_shards),
        holding=watched.holding,
        horizon=horizon(
            known.info.configuration,
            status,
            watched.resolved,
            lambda start: tables.copied_from(start) - known.copied - known.stragglers.keys(),
        ),
        sightings=memory.sightings,
        watching=memory.watching,
        executions=collected.executions,
        still=collected.still,
        copying=configuration.target is not None and bool(tables.in_copy(known.copied)),
        entered=memory.entered,
        letters=collected.letters,
        errors=watched.errors,
    )
