"""`join_assignment`, `join_report`: what is in etcd of a node, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.records.node import Assignment, PositionReport
from coordination.etcd.protocol import KeyValue
from coordination.parts import JoinedAssignment, JoinedReport
from coordination.view import KeyGroup


def join_assignment(keys: Iterable[KeyValue]) -> tuple[Assignment, int]:
    """A node's assignment and its revision. The revision is 0 if the node never had one."""
    joined = JoinedAssignment().then(KeyGroup({kv.key: kv for kv in keys}))
    return joined.assignment, joined.rev


def join_report(keys: Iterable[KeyValue]) -> PositionReport:
    """From the main value and the parts of one report, the main value first."""
    main, *parts = keys
    report = JoinedReport().then(main, KeyGroup({kv.key: kv for kv in parts})).report
    assert report is not None
    return report
