"""`Agreement`: what the simulated changefeed should replicate, and when two definitions are equal, written without the product's code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson

from changefeed.table import TableName

DATABASES = ("shop", "crm")
GATHERED, GATHERED_TABLE = ("gather_north", "gather_south"), "t"
"""Of each of these databases one table, which have one name at the target."""
GATHERED_TARGET = TableName("all", GATHERED_TABLE)
_OUTSIDE = "x_out"
_DEFAULTS: Mapping[str, Any] = {"validationLevel": "strict", "validationAction": "error", "capped": False}


@dataclass(frozen=True)
class Agreement:
    """All tables of both databases except those named `x_out` and a server's own temporary ones. `shop` may be routed to `copy`.

    The tables of a database that is `late` are added while the changefeed runs. `kept`: what the target's tables hold stays when they are copied.
    `gathered`: there are tables with one name at the target (`gathered.py`).
    """

    routed: bool
    late: str | None = None
    kept: bool = False
    gathered: bool = False

    def configuration(self, *, whole: bool = False) -> dict[str, Any]:
        """`whole`: with the late ones."""
        databases = [db for db in DATABASES if whole or db != self.late]
        gathered = [f"{db}.{GATHERED_TABLE}" for db in GATHERED if self.gathered]
        routes = [{"from": f"gather_*.{GATHERED_TABLE}", "to": str(GATHERED_TARGET)}] if self.gathered else []
        return {
            "filter": {"tables": [*(f"{db}.*" for db in databases), *gathered, f"!*.{_OUTSIDE}"]},
            "routes": [*routes, *([{"from": "shop.*", "to": "copy.*"}] if self.routed else [])],
            "on_occupied": "keep" if self.kept else "refuse",
        }

    def wants(self, name: TableName) -> bool:
        of_the_server = name.coll.startswith("tmp") and ".convertToCapped." in name.coll
        if name.db in GATHERED:
            return self.gathered and name.coll == GATHERED_TABLE
        return name.db in DATABASES and name.coll != _OUTSIDE and not of_the_server

    def target(self, name: TableName) -> TableName:
        if name.db in GATHERED:
            return GATHERED_TARGET
        return TableName("copy", name.coll) if self.routed and name.db == "shop" else name


def definition_differences(
    options: Mapping[str, Any], indexes: Mapping[str, Any], options_there: Mapping[str, Any], indexes_there: Any
) -> list[str]:
    """The differences between the definitions of a table and its copy, as text."""
    found = [] if _options(options) == _options(options_there) else [f"options {options} became {options_there}"]
    if _indexes(indexes) != _indexes(indexes_there):
        found.append(f"indexes {list(indexes.values())} became {list(indexes_there.values())}")
    return found


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """A missing option has its default."""
    return {**_DEFAULTS, **options}


def _indexes(indexes: Mapping[str, Any]) -> set[bytes]:
    """Compares indexes field by field, in any order."""
    return {bson.encode(dict(sorted({"unique": False, **spec}.items()))) for spec in indexes.values()}
