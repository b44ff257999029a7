"""`not_ready`, `faults`: what is wrong with a node, as far as etcd says. Pure.

What a node cannot reach is said by its reports about the changefeeds: each has a source and a target of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.errors import (
    SinkMajorityStalled,
    SinkRefused,
    SinkUnavailable,
    SourceMajorityStalled,
    SourceRefused,
    SourceUnavailable,
)
from changefeed.lifecycle import ErrorReport
from changefeed.records.node import NodeHealth, PositionReport
from changefeed.records.requests import ChangefeedId

_OF_SOURCE = frozenset({SourceUnavailable.code, SourceMajorityStalled.code, SourceRefused.code})
_OF_TARGET = frozenset({SinkUnavailable.code, SinkMajorityStalled.code, SinkRefused.code})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFaults:
    """`source`, `target`: the changefeeds whose source or target the node does not reach. `last`: its newest error, with its changefeed."""

    source: tuple[ChangefeedId, ...] = ()
    target: tuple[ChangefeedId, ...] = ()
    last: tuple[ChangefeedId | None, ErrorReport] | None = None


def not_ready(health: NodeHealth) -> str:
    """Empty when it is ready."""
    if health.ready:
        return ""
    if health.error is None:
        return "Spark has not run a job yet, or not for long enough since it last failed"
    return f"Spark runs no jobs, last tried at {health.error.at:%H:%M:%S} UTC: {health.error.message}"


def faults(health: NodeHealth | None, reports: Iterable[tuple[ChangefeedId, PositionReport]]) -> NodeFaults:
    """`reports`: of this node, in the runs that the changefeeds have now."""
    errors = [(id, report.error) for id, report in sorted(reports) if report.error is not None]
    own = [(None, health.error)] if health is not None and health.error is not None else []
    return NodeFaults(
        source=tuple(id for id, error in errors if error.code in _OF_SOURCE),
        target=tuple(id for id, error in errors if error.code in _OF_TARGET),
        last=max([*own, *errors], key=lambda each: each[1].at, default=None),
    )
