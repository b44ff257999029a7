"""`OrphanGuard`: ends a watch where documents appear whose writes a shard logs as those of a table. Pure.

A migration leaves *orphans*: documents on a shard that does not own them. With a featureCompatibilityVersion below 6.0, which a cluster keeps
after its servers were upgraded until an administrator raises it, an update or delete of many documents concerns orphans too, and the
entry looks like that of an owned document.

    100.1  sa  i config.migrationCoordinators      before sb is asked to copy anything: here the watch ends
    100.3  sa  i config.rangeDeletions
    100.17 sb  i config.rangeDeletions
    100.18 sb  i shop.items, flagged
    100.40 sb  u shop.items, of an orphan          not flagged
    109.5  sa  d config.rangeDeletions             the orphans are deleted

The entry at 100.1 is durable before sb hears of it, so all writes of these orphans come after it. Any other entry about such a document
says that there were orphans before. If the shards have no such document (`refuse_orphans`) and no entry since the start, there was none at the start.

Servers behave by the featureCompatibilityVersion of their cluster (`feature_version`), and not by their own version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from changefeed.errors import SourceUnsupported
from changefeed.position import Position
from changefeed.table import TableName
from source.sharded.effective_order import Operation
from source.sharded.tables.cluster_state import changed_field, document_id

MIGRATIONS, RANGES = TableName("config", "migrationCoordinators"), TableName("config", "rangeDeletions")
VERSIONS = TableName("admin", "system.version")
REASON = "below featureCompatibilityVersion 6.0 a shard logs writes to the documents that a moved chunk leaves behind as those to its own ones"
STILLNESS = f"{REASON}; stop the balancer with sh.stopBalancer(), move no chunk, wait until config.rangeDeletions is empty on all shards"
REMEDY = f"{STILLNESS}, then create the changefeed with --start initial, after removing the one that stopped"


@dataclass(slots=True)
class OrphanGuard:
    """`on`: orphans are logged as owned documents."""

    on: bool = False

    @classmethod
    def of(cls, now: tuple[int, int], operations: Iterable[Operation]) -> Self:
        """As it was before these operations of the config servers, which raise their version last and lower it first."""
        changed = next((each["o"] for each in operations if _is_version(each)), None)
        if changed is None:
            return cls(now < TELLS_ORPHANS)
        if "previousVersion" in changed:
            return cls(feature_version(changed["previousVersion"]) < TELLS_ORPHANS)
        if "targetVersion" in changed:
            return cls(feature_version(changed["version"]) < TELLS_ORPHANS)
        return cls(feature_version(changed["version"]) <= TELLS_ORPHANS)

    def take(self, shard: str, operation: Operation, at: Position) -> None:
        """Raises `SourceUnsupported`. To be called before anything of that time is released."""
        ns = operation["ns"]
        if _is_version(operation):
            self._version_changed(operation, at)
        elif self.on and ns in (str(MIGRATIONS), str(RANGES)) and operation["op"] in ("i", "d"):
            of = changed_field(operation, "nss")
            raise SourceUnsupported(
                f"shard {shard} moved or cleaned up a chunk{f' of {of}' if of else ''} at {at}: {REMEDY}"
            )

    def _version_changed(self, operation: Operation, at: Position) -> None:
        version = changed_field(operation, "version")
        below = feature_version(version) < TELLS_ORPHANS
        if below and not self.on:
            raise SourceUnsupported(
                f"the cluster's featureCompatibilityVersion was lowered to {version} at {at}: {REMEDY}"
            )
        self.on = below


def _is_version(operation: Operation) -> bool:
    return operation["ns"] == str(VERSIONS) and operation["op"] in ("i", "u") and document_id(operation) == FEATURES


FEATURES = "featureCompatibilityVersion"
TELLS_ORPHANS = (6, 0)
"""From here on a shard does not log writes to documents that it does not own (`OrphanGuard`)."""


def feature_version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
