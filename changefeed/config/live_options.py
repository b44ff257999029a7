"""`OPTIONS`: when each option of a changefeed may be changed. `alike`: whether two configurations differ only in limits. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.kafka_options import CLEANUP
from changefeed.config.uri import ConnectionUri


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
    "verify": Changeable.LIVE,
    "managed_by": Changeable.LIVE,
    **dict.fromkeys(
        (
            *("source", "sink", "target", "filter", "columns", "ddl", "capture", "images", "on_occupied"),
            *("on_divergence", "on_rejected", "dead_letter", "shard_target", "users", "sync_points"),
            "pipeline",
        ),
        Changeable.PAUSED,
    ),
}
"""By the names of the configuration's fields; the options inside one are as it is, if they are not named themselves."""

_FILES = frozenset({"compression", "commit_interval", "file_size"})
LIVE_IN_SINKS: Mapping[str, frozenset[str]] = {"file": _FILES, "s3": _FILES, "kafka": frozenset({"compression"})}
"""Of the options in the URI of a sink, those that a message does not depend on, nor the place where it is: readers need not know them. Of Kafka also settings of
new topics, but those by which messages are removed.
"""
_SETTING, _REMOVES = "topic.", f"topic.{CLEANUP}"

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


def messages_at(sink: ConnectionUri) -> str:
    """Where a sink's messages are and how they are written. Not the brokers of a Kafka: which one it is, its id says."""
    return re.sub(r"^kafka://[^/?]*", "kafka://", without_live(str(sink)))


def without_live(uri: str) -> str:
    """The URI of a sink without the options that may change while it is written to."""
    base, _, query = uri.partition("?")
    scheme = base.partition("://")[0]
    live = LIVE_IN_SINKS.get(scheme, frozenset())
    kept = [
        part
        for part in query.split("&")
        for name in [part.partition("=")[0]]
        if name not in live and not (scheme == "kafka" and name.startswith(_SETTING) and name != _REMOVES)
    ]
    return f"{base}?{'&'.join(filter(None, kept))}"


def _value(configuration: Configuration, name: str) -> object:
    if name == "sink":
        return without_live(configuration.sink.reference)
    if name == "filter.tables":
        return configuration.filter.tables
    if name == "filter":
        return configuration.filter.model_dump(exclude={"tables"})
    return getattr(configuration, name)
