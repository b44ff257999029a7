"""`Actions`: carries out what a form asks, by the services of the admin API: with their checks, and in their audit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import structlog

from admin.access import Caller
from admin.server import Services
from admin.services.rpc import AdmittedCall
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import verify_pb2
from changefeed.errors import ConflictError, SluiceError
from changefeed.printable import counted
from console import words
from console.action_forms import AskedAction
from console.picture import Task
from credentials.redaction import redacted

_log = structlog.get_logger()

MOST_LETTERS = 5_000
TASKS = frozenset({"verify", "finalize"})
"""Actions that go on after they have been asked for."""
_LIVE = ("copy_limit", "apply_limit", "delay")
_MOST_TASKS = 100
Run = Iterator[tuple[str, Sequence[str]]]
"""What a task says while it runs, with what it has found; the last is its result."""


def _table(asked: AskedAction) -> dict[str, str]:
    return {"changefeed": asked.feed, "table": asked.subject}


_Call = Callable[[Services, AskedAction, Mapping[str, str], AdmittedCall], object]
_CALLS: Mapping[str, _Call] = {
    "pause": lambda to, on, _, call: to.changefeeds.PauseChangefeed(pb.PauseChangefeedRequest(id=on.feed), call),
    "resume": lambda to, on, _, call: to.changefeeds.ResumeChangefeed(pb.ResumeChangefeedRequest(id=on.feed), call),
    "update": lambda to, on, given, call: to.changefeeds.UpdateChangefeed(_update(on.feed, given), call),
    "table-stop": lambda to, on, _, call: to.tables.StopTable(pb.StopTableRequest(**_table(on)), call),
    "table-resume": lambda to, on, _, call: to.tables.ResumeTable(pb.ResumeTableRequest(**_table(on)), call),
    "table-recopy": lambda to, on, _, call: to.tables.RecopyTables(
        pb.RecopyTablesRequest(changefeed=on.feed, tables=[on.subject]), call
    ),
    "table-move": lambda to, on, given, call: to.tables.MoveTable(
        pb.MoveTableRequest(**_table(on), node=given.get("node", "")), call
    ),
    "ddl-skip": lambda to, on, _, call: to.ddls.SkipDdl(pb.SkipDdlRequest(changefeed=on.feed, ddl=on.subject), call),
    "letters-retry": lambda to, on, _, call: to.tables.RetryRejectedRows(
        pb.RetryRejectedRowsRequest(**_table(on)), call
    ),
    "letters-drop": lambda to, on, _, call: to.tables.DropRejectedRows(pb.DropRejectedRowsRequest(**_table(on)), call),
    "drain": lambda to, on, given, call: to.nodes.DrainNode(
        pb.DrainNodeRequest(id=on.subject, force=given.get("force") == "yes"), call
    ),
    "undrain": lambda to, on, _, call: to.nodes.UndrainNode(pb.UndrainNodeRequest(id=on.subject), call),
}


class Actions:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._tasks: dict[tuple[str, str], Task] = {}

    def tasks(self, feed: str) -> list[Task]:
        with self._lock:
            return [task for (of, _), task in self._tasks.items() if of == feed]

    def readiness(self, feed: str, caller: Caller) -> pb.Readiness:
        return self._services.changefeeds.GetReadiness(pb.GetReadinessRequest(id=feed), AdmittedCall(caller))

    def letters(self, feed: str, caller: Caller) -> Iterator[pb.RejectedRow]:
        request = pb.ListRejectedRowsRequest(changefeed=feed)
        for number, each in enumerate(self._services.tables.ListRejectedRows(request, AdmittedCall(caller))):
            if number >= MOST_LETTERS:
                return
            yield each

    def history(self, feed: str, caller: Caller) -> Iterator[pb.HistoryEntry]:
        return self._services.changefeeds.ListHistory(pb.ListHistoryRequest(changefeed=feed), AdmittedCall(caller))

    def carry_out(self, asked: AskedAction, given: Mapping[str, str], caller: Caller) -> None:
        """Raises why it was refused."""
        call = AdmittedCall(caller)
        match asked.verb:
            case "verify":
                self._start(asked, lambda: self._verify(asked.feed, call))
            case "finalize":
                self._start(asked, lambda: self._finalize(asked.feed, given.get("leave_stopped") == "yes", call))
            case verb:
                _CALLS[verb](self._services, asked, given, call)

    def _start(self, asked: AskedAction, run: Callable[[], Run]) -> None:
        """In a thread of its own. It goes on when the browser is gone, and ends with the node."""
        key, task = (asked.feed, asked.verb), Task(verb=asked.action.title, started_at=datetime.now(UTC), said="begins")
        with self._lock:
            known = self._tasks.pop(key, None)
            if known is not None and known.ended_at is None:
                self._tasks[key] = known
                raise ConflictError(
                    f"{asked.action.title} of {asked.feed!r} already runs on this node; its page shows how far it is"
                )
            self._tasks = dict(list(self._tasks.items())[-_MOST_TASKS:]) | {key: task}
        threading.Thread(target=self._run, args=(key, task, run), name=f"console {asked.verb}", daemon=True).start()

    def _run(self, key: tuple[str, str], task: Task, run: Callable[[], Run]) -> None:
        try:
            for said, lines in run():
                task = replace(task, said=said, lines=lines)
                self._tell(key, task)
            task = replace(task, failed=bool(task.lines))
        except SluiceError as error:
            task = replace(task, said=redacted(str(error)), failed=True)
        except Exception:  # noqa: BLE001 - the edge of a thread; logged with its traceback
            _log.exception("console_task_failed", task=key)
            task = replace(task, said="internal error of the node; its log has the details", failed=True)
        self._tell(key, replace(task, ended_at=datetime.now(UTC)))

    def _tell(self, key: tuple[str, str], task: Task) -> None:
        with self._lock:
            self._tasks[key] = task

    def _verify(self, id: str, call: AdmittedCall) -> Run:
        """Its lines are the tables that are not as they should be; no document is shown."""
        lines: list[str] = []
        request = verify_pb2.VerifyChangefeedRequest(changefeed=id)
        for event in self._services.verifications.VerifyChangefeed(request, call):
            match event.WhichOneof("event"):
                case "progress":
                    done = event.progress
                    yield f"{done.tables_done:,} of {done.tables:,} tables, {done.documents:,} documents", tuple(lines)
                case "table" if event.table.outcome in (
                    verify_pb2.VERIFY_OUTCOME_DIFFERENT,
                    verify_pb2.VERIFY_OUTCOME_UNSETTLED,
                ):
                    aspects = [each.aspect for each in event.table.aspects if each.outcome == event.table.outcome]
                    lines.append(f"{event.table.name}: {_outcome(event.table.outcome)} in {', '.join(aspects)}")
                case "summary":
                    found = event.summary
                    yield (
                        f"{_outcome(found.outcome)}: {counted(found.tables, 'table')}, {found.documents:,} documents",
                        tuple(lines),
                    )

    def _finalize(self, id: str, leave_stopped: bool, call: AdmittedCall) -> Run:
        request = pb.FinalizeChangefeedRequest(id=id, leave_stopped=leave_stopped)
        for progress in self._services.changefeeds.FinalizeChangefeed(request, call):
            if progress.done:
                said = f"finished at {words.place(progress.target)}; expiries restored at the target: {progress.restored:,}"
                yield said, tuple(progress.problems)
            else:
                yield f"at {words.place(progress.checkpoint)}, {words.span(progress.left.ToTimedelta())} left", ()


def _update(id: str, given: Mapping[str, str]) -> pb.UpdateChangefeedRequest:
    """An empty field stays as it is."""
    wanted: dict[str, Any] = {name: text for name in _LIVE if (text := given.get(name, "").strip())}
    return pb.UpdateChangefeedRequest(id=id, **wanted)


def _outcome(outcome: verify_pb2.VerifyOutcome) -> str:
    return verify_pb2.VerifyOutcome.Name(outcome).removeprefix("VERIFY_OUTCOME_").lower().replace("_", " ")
