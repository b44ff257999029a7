"""`UnfinishedCopies`: drops the tables beside which tables are copied anew, when their changefeed is removed or begins anew.

Nothing writes to them any more: the caller waits until all pipelines stand still. A crash after the drop finds nothing to drop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing

import structlog

from changefeed.errors import InvariantError, SluiceError
from changefeed.records.ddl import DdlRecord
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableName, TableSchema
from owner.background import Background
from schema_store.store import SchemaStore
from sink.ddl import DdlApplier, DropTables

_PATIENCE_SECONDS = 30.0

_log = structlog.get_logger()


def unfinished(bases: Iterable[TableSchema], records: Iterable[DdlRecord]) -> tuple[TableName, ...]:
    """At the target. Pure. Also those whose DDL is not done: it may have been applied."""
    known = list(records)
    versions = SchemaStore.from_records(bases, known).versions
    tip = versions.apply_all(record.event for record in known if record.open)
    found = {schema.beside.name for of in (versions, tip) for _, schema in of.living() if schema.beside is not None}
    return tuple(sorted(found))


class UnfinishedCopies:
    """For one owner's term of one changefeed. Never waits."""

    def __init__(self, id: ChangefeedId, background: Background, open_sink: Callable[[], DdlApplier]) -> None:
        self._background = background
        self._open_sink = open_sink
        self._log = _log.bind(changefeed=id)
        self._give_up_deadline: float | None = None

    def dropped(self, bases: Iterable[TableSchema], records: Iterable[DdlRecord]) -> bool:
        """Whether they are gone, or cannot be dropped: neither a target that does not answer nor a DDL that the schemas cannot explain may keep
        a changefeed from being removed.
        """
        try:
            names = unfinished(bases, records)
        except InvariantError as error:
            self._log.warning("unfinished_copies_unknown", error=str(error))
            return True
        if not names:
            return True
        if self._give_up_deadline is None:
            self._give_up_deadline = time.monotonic() + _PATIENCE_SECONDS
        try:
            return self._background.take(("unfinished copies", names), lambda: self._drop(names)) is not None
        except SluiceError as error:
            if time.monotonic() < self._give_up_deadline:
                return False
            self._log.warning("unfinished_copies_left", tables=", ".join(map(str, names)), error=str(error))
            return True

    def _drop(self, names: Sequence[TableName]) -> bool:
        drop = DropTables(names=tuple(names))
        with closing(self._open_sink()) as sink:
            sink.apply(drop, sink.observe(drop.names))
        return True
