"""`OPTIONS`: when each option of a changefeed may be changed. `alike`: whether two configurations differ only in live options. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from changefeed.config.configuration import Configuration


class Changeable(StrEnum):
    LIVE = "live"
    """While the changefeed runs."""
    PAUSED = "with a pause"
    AT_CREATE = "only at create"


OPTIONS: Mapping[str, Changeable] = {
    "id": Changeable.AT_CREATE,
    "start": Changeable.AT_CREATE,
    **dict.fromkeys(
        (
            *("source", "sink", "target", "filter", "routes", "columns", "ddl", "capture", "on_occupied"),
            *("on_divergence", "on_rejected", "dead_letter", "users", "pipeline"),
        ),
        Changeable.PAUSED,
    ),
    "copy_limit": Changeable.LIVE,
    "apply_limit": Changeable.LIVE,
    "delay": Changeable.LIVE,
}
"""By the names of the configuration's fields; the options inside one are as it is."""

LIVE_OPTIONS = frozenset(name for name, changes in OPTIONS.items() if changes is Changeable.LIVE)


def alike(one: Configuration, other: Configuration) -> bool:
    return not needing_a_pause(one, other)


def needing_a_pause(one: Configuration, other: Configuration) -> tuple[str, ...]:
    """The options in which the two differ, without the live ones."""
    return tuple(name for name in OPTIONS if name not in LIVE_OPTIONS and getattr(one, name) != getattr(other, name))
