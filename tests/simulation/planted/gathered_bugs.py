"""Bugs of tables that have one name at the target."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from changefeed.config.tables.routes import Routes
from changefeed.event import DdlType
from owner.ddl.scope import DdlClassifier
from processor.copy.plan import CopyInputs
from sink.ddl import Routing
from tests.simulation.planted.bug import Bug


def _a_drop_takes_the_rows_of_others_with_it() -> AbstractContextManager[Any]:
    return patch.object(Routing, "sharing", lambda self, name, *, apart_from: frozenset())


def _no_table_may_share_its_name() -> AbstractContextManager[Any]:
    return patch.object(Routes, "may_share", lambda self, name: False)


def _a_drop_of_another_table_ends_a_copy() -> AbstractContextManager[Any]:
    def ended(**facts: Any) -> CopyInputs:
        held_by = facts["held_by"]
        drops = held_by is not None and held_by.type in (DdlType.DROP, DdlType.DROP_DATABASE)
        return CopyInputs(**{**facts, "ends": drops})

    return patch("processor.copy.copy_inputs.CopyInputs", ended)


def _an_index_touches_its_own_table_alone() -> AbstractContextManager[Any]:
    targets = DdlClassifier._targets

    def own(self: DdlClassifier, event: Any, touched: Any, nameless: Any) -> Any:
        return frozenset() if event.type is DdlType.CREATE_INDEXES else targets(self, event, touched, nameless)

    return patch.object(DdlClassifier, "_targets", own)


GATHERED_BUGS: Mapping[str, Bug] = {
    "a drop takes the rows of others with it": Bug(_a_drop_takes_the_rows_of_others_with_it, 20, gathered=True),
    "no table may share its name": Bug(_no_table_may_share_its_name, 60, gathered=True),
    "a drop of another table ends a copy": Bug(_a_drop_of_another_table_ends_a_copy, 40, gathered=True),
    "an index touches its own table alone": Bug(_an_index_touches_its_own_table_alone, 40, gathered=True),
}
