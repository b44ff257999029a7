"""`readiness_of`: whether a cut-over would succeed now, how long it would take, and what is in its way. Pure.

A finding is in the way if `finalize` would refuse, would wait for something that nobody knows the end of, or would leave the target with other rows than
the source:

    it does not run, has an error, or has not begun      a copy is running        tables wait for a user (unless they are to be left)
    tables are behind the others       DDLs are not done, an index is being built           rows that the target refuses
    it would take longer than the user allows                                               the way back that the user asks for is impossible
    the source does not answer, or cannot block the writes of its users if that is asked for
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.event import DdlType
from changefeed.lifecycle import State
from changefeed.printable import named
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus

_LEAST = timedelta(seconds=1)
"""An owner and its nodes need so long to see the end and to report that it is reached."""
_OF_AN_EXPIRY = timedelta(milliseconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOverFacts:
    """`error`: why it cannot go on, or has a warning. `stopped`, `behind`, `copying`: names of tables. `expiries`: to be restored."""

    id: ChangefeedId
    state: State
    error: str = ""
    status: ChangefeedStatus | None
    source_problems: Sequence[str] = ()
    stopped: Sequence[str] = ()
    behind: Sequence[str] = ()
    copying: int = 0
    copy_left: timedelta | None = None
    open_ddls: Sequence[DdlRecord] = ()
    rejected: int = 0
    expiries: int = 0
    way_back: Sequence[str] = ()
    """What keeps the way back from being made. `notes`: what a user should know of it."""
    notes: Sequence[str] = ()


def _finding(kind: str, message: str, in_the_way: bool = True) -> pb.ReadinessFinding:
    return pb.ReadinessFinding(kind=kind, message=message, in_the_way=in_the_way)


def readiness_of(facts: CutOverFacts, now: datetime, *, within: timedelta, leave_stopped: bool) -> pb.Readiness:
    if facts.state is State.FINISHED:
        done = _finding("finished", "it has finished", in_the_way=False)
        return pb.Readiness(ready=True, findings=[done], takes=timedelta(0))
    findings = [*_of_its_state(facts), *_of_its_tables(facts, leave_stopped=leave_stopped), *_of_its_ddls(facts)]
    findings += (_finding("way_back", problem) for problem in facts.way_back)
    if facts.rejected:
        rows = "1 row is" if facts.rejected == 1 else f"{facts.rejected:,} rows are"
        findings.append(
            _finding(
                "rejected", f"{rows} rejected by the target and missing there; see `sluice table rejected {facts.id}`"
            )
        )
    lag = facts.status.lag(now) if facts.status is not None else None
    known = lag is not None and not any(finding.in_the_way for finding in findings)
    takes = max(lag or timedelta(0), _LEAST) + facts.expiries * _OF_AN_EXPIRY if known else None
    if takes is not None and takes > within:
        slow = f"it would take about {takes.total_seconds():.0f} s, since it lags by {(lag or takes).total_seconds():.0f} s"
        findings.append(_finding("lag", f"{slow}; wait until it has caught up, or allow more (--within)"))
    findings += (_finding("way_back", note, in_the_way=False) for note in facts.notes)
    if facts.expiries:
        findings.append(_finding("expiry", f"expiries to be restored at the end: {facts.expiries:,}", in_the_way=False))
    ready = not any(finding.in_the_way for finding in findings)
    return pb.Readiness(ready=ready, findings=findings, takes=takes)


def _of_its_state(facts: CutOverFacts) -> Iterator[pb.ReadinessFinding]:
    if facts.status is None or facts.status.checkpoint is None:
        yield _finding("state", "it has not begun" + (f": {facts.error}" if facts.error else ""))
    elif facts.state not in (State.NORMAL, State.WARNING):
        yield _finding("state", f"it is {facts.state}" + (f": {facts.error}" if facts.error else "; resume it"))
    elif facts.error:
        yield _finding("error", facts.error)
    yield from (_finding("source", problem) for problem in facts.source_problems)


def _of_its_tables(facts: CutOverFacts, *, leave_stopped: bool) -> Iterator[pb.ReadinessFinding]:
    if facts.copying:
        left = f", about {facts.copy_left.total_seconds():.0f} s left" if facts.copy_left is not None else ""
        yield _finding("copy", f"{_count(facts.copying, 'table')} being copied{left}")
    if facts.stopped:
        hint = "they are left as they are" if leave_stopped else "resume them, or leave them (--leave-stopped)"
        yield _finding(
            "stopped",
            f"{_count(len(facts.stopped), 'table')} waiting for a user: {named(facts.stopped)}; {hint}",
            not leave_stopped,
        )
    if facts.behind:
        yield _finding("behind", f"{_count(len(facts.behind), 'table')} behind the others: {named(facts.behind)}")


def _of_its_ddls(facts: CutOverFacts) -> Iterator[pb.ReadinessFinding]:
    """A refused one is told by its tables, which wait for a user."""
    waiting = [record for record in facts.open_ddls if record.refused is None]
    building = [record for record in waiting if _builds(record)]
    if building:
        yield _finding(
            "index", f"{_count(len(building), 'index build')} running at the target: {named(map(_text, building))}"
        )
    others = [record for record in waiting if not _builds(record)]
    if others:
        yield _finding("ddl", f"{_count(len(others), 'schema change')} not done: {named(map(_text, others))}")


def _builds(record: DdlRecord) -> bool:
    return record.event.type is DdlType.CREATE_INDEXES and record.state is DdlState.EXECUTING


def _text(record: DdlRecord) -> str:
    return f"{record.event.type} {record.event.table or record.event.db}"


def _count(number: int, what: str) -> str:
    return f"1 {what} is" if number == 1 else f"{number:,} {what}s are"
