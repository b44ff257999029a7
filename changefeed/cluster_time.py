"""`MajorityPoint`: how much of the logical clock the majority of a replica set has. `ClusterTime` itself stands with those who read a changefeed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from sluice_client.cluster_time import ClusterTime, as_text

__all__ = ["ClusterTime", "MajorityPoint", "as_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MajorityPoint:
    replica_set: str
    primary: str
    term: int
    """The term of the newest write that the majority has."""
    majority_ts: ClusterTime
    newest_ts: ClusterTime

    @classmethod
    def of_hello(cls, reply: Mapping[str, Any]) -> Self | None:
        """None for a router, whose reply says nothing about its shards."""
        written = reply.get("lastWrite", {})
        if "majorityOpTime" not in written or "opTime" not in written:
            return None
        return cls(
            replica_set=str(reply.get("setName")),
            primary=str(reply.get("primary", reply.get("me"))),
            term=int(written["majorityOpTime"].get("t", 0)),
            majority_ts=ClusterTime.from_bson(written["majorityOpTime"]["ts"]),
            newest_ts=ClusterTime.from_bson(written["opTime"]["ts"]),
        )

    @property
    def behind(self) -> bool:
        return self.majority_ts < self.newest_ts

    def has(self, write_ts: ClusterTime, term: int) -> bool:
        """Whether the majority is known to have a write of this time and term. A write of an earlier term may have been rolled back."""
        return self.term == term and write_ts <= self.majority_ts

    def __str__(self) -> str:
        """The same text for as long as the majority does not move."""
        return (
            f"the majority of replica set {self.replica_set!r} has not moved since {self.majority_ts.to_iso()} ({self.majority_ts}), "
            f"while its primary {self.primary} answers and takes writes; start its other members, or fix what keeps them from replicating"
        )
