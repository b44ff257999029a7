"""`OPTIONS`: when each option of a changefeed may be changed. `alike`: whether two configurations differ only in limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from changefeed.config.configuration import Configuration


class Changeable(StrEnum):
    LIVE = "live"
    """While the changefeed runs."""
    IN_PLACE = "while it runs; with a pause if tables get other names"
    PAUSED = "with a pause"
    AT_CREATE = "only at create"


OPTIONS: Mapping[str, Changeable] = {
    "id": Changeable.AT_CREATE,
    "start": Changeable.AT_CREATE,
    "filter.tables": Changeable.LIVE,
    "routes": Changeable.IN_PLACE,
    "copy_limit": Changeable.LIVE,
    "apply_limit": Changeable.LIVE,
    "delay": Changeable.LIVE,
    **dict.fromkeys(
        (
            *("source", "sink", "target", "filter", "columns", "ddl", "capture", "images", "on_occupied"),
            *("on_divergence", "on_rejected", "dead_letter", "shard_target", "users", "pipeline"),
        ),
        Changeable.PAUSED,
    ),
}
"""By the names of the configuration's fields; the options inside one are as it is, if they are not named themselves."""

TABLE_OPTIONS = frozenset({"filter.tables", "routes"})
"""They take tables in and out, which the owner does between two runs of the pipelines. The others that are live are limits."""

LIVE_OPTIONS = frozenset(name for name, changes in OPTIONS.items() if changes is Changeable.LIVE)


def alike(one: Configuration, other: Configuration) -> bool:
    """Whether the same tables are replicated in the same way, at whatever speed."""
    return not differing(one, other)


def needing_a_pause(one: Configuration, other: Configuration) -> tuple[str, ...]:
    """The options in which the two differ, without the live ones."""
    return tuple(name for name in differing(one, other) if name not in TABLE_OPTIONS)


def differing(one: Configuration, other: Configuration) -> tuple[str, ...]:
    """The options in which the two differ, without the limits."""
    return tuple(
        name
        for name in OPTIONS
        if (name not in LIVE_OPTIONS or name in TABLE_OPTIONS) and _value(one, name) != _value(other, name)
    )


def _value(configuration: Configuration, name: str) -> object:
    if name == "filter.tables":
        return configuration.filter.tables
    if name == "filter":
        return configuration.filter.model_dump(exclude={"tables"})
    return getattr(configuration, name)
