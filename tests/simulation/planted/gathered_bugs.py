"""Bugs of tables that have one name at the target."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from changefeed.config.tables.routes import Routes
from changefeed.event import DdlType
from changefeed.records.copy import CopyStage
from owner.ddl.scope import DdlClassifier
from processor.copy.plan import CopyAction, CopyInputs, Finish, decide
from processor.copy.table_copy import TableCopy
from sink.ddl import Routing
from tests.simulation.planted.bug import Bug


def _a_drop_takes_the_rows_of_others_with_it() -> AbstractContextManager[Any]:
    return patch.object(Routing, "sharing", lambda self, name, *, apart_from: frozenset())


def _no_table_may_share_its_name() -> AbstractContextManager[Any]:
    return patch.object(Routes, "may_share", lambda self, name: False)


def _a_drop_of_another_table_ends_a_copy() -> AbstractContextManager[Any]:
    """What is copied by then counts as the whole."""

    def planted(copy: TableCopy | None, inputs: CopyInputs) -> CopyAction:
        by = inputs.held_by
        dropped = by is not None and by.type in (DdlType.DROP, DdlType.DROP_DATABASE) and not inputs.ends
        over = dropped and copy is not None and copy.stage is CopyStage.COPYING and not inputs.running
        return Finish() if over else decide(copy, inputs)

    return patch("processor.copy.table_copies.decide", planted)


def _an_index_touches_its_own_table_alone() -> AbstractContextManager[Any]:
    targets = DdlClassifier._targets

    def own(self: DdlClassifier, event: Any, touched: Any, nameless: Any) -> Any:
        return frozenset() if event.type is DdlType.CREATE_INDEXES else targets(self, event, touched, nameless)

    return patch.object(DdlClassifier, "_targets", own)


GATHERED_BUGS: Mapping[str, Bug] = {
    "a drop takes the rows of others with it": Bug(_a_drop_takes_the_rows_of_others_with_it, 20, gathered=True),
    "no table may share its name": Bug(_no_table_may_share_its_name, 60, gathered=True),
    "a drop of another table ends a copy": Bug(_a_drop_of_another_table_ends_a_copy, 20, gathered=True),
    "an index touches its own table alone": Bug(_an_index_touches_its_own_table_alone, 40, gathered=True),
}
