"""`described`: how a node of a test describes itself in etcd."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from changefeed.records.node import NodeId, NodeRecord, Role


def described(name: str, *roles: Role) -> Callable[[NodeId], NodeRecord]:
    def describe(node: NodeId) -> NodeRecord:
        now = datetime.now(UTC)
        return NodeRecord(
            id=node,
            name=name,
            admin_address="",
            roles=frozenset(roles),
            version="1",
            started_at=now,
        )

    return describe
