"""Where a cluster's featureCompatibilityVersion is below 6.0, a watch ends at the first entry about a moved chunk."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnsupported
from changefeed.position import Position
from source.sharded.effective_order import Operation
from source.sharded.tables.orphan_guard import OrphanGuard

AT = Position(ClusterTime(100, 1))


def version(**fields: str) -> Operation:
    """As the config servers write it (6.0.27)."""
    id = {"_id": "featureCompatibilityVersion"}
    return {"op": "u", "ns": "admin.system.version", "o": id | fields, "o2": id}


RAISING = version(version="5.0", targetVersion="6.0"), version(version="6.0")
LOWERING = version(version="5.0", targetVersion="5.0", previousVersion="6.0"), version(version="5.0")


def entry(coll: str, op: str) -> Operation:
    o: dict[str, Any] = {"_id": 1, "nss": "shop.items"} if op == "i" else {"_id": 1}
    return {"op": op, "ns": f"config.{coll}", "o": o}


@pytest.mark.parametrize("coll", ["migrationCoordinators", "rangeDeletions"])
def test_a_moved_chunk_and_one_that_is_cleaned_up_end_the_watch(coll: str) -> None:
    with pytest.raises(
        SourceUnsupported, match=r"shard sa moved or cleaned up a chunk of shop\.items at .*stopBalancer"
    ):
        OrphanGuard(on=True).take("sa", entry(coll, "i"), AT)
    with pytest.raises(SourceUnsupported, match=r"shard sa moved or cleaned up a chunk at .*--start initial"):
        OrphanGuard(on=True).take("sa", entry(coll, "d"), AT)
    OrphanGuard(on=False).take("sa", entry(coll, "i"), AT)


def test_other_entries_do_not() -> None:
    other = {"op": "i", "ns": "admin.system.version", "o": {"_id": "minOpTimeRecovery"}}
    for operation in (other, {"op": "c", "ns": "shop.$cmd", "o": {"drop": "items"}}):
        OrphanGuard(on=True).take("sa", operation, AT)


def test_the_version_is_taken_back_to_that_at_the_start() -> None:
    for after in (0, 1):
        assert OrphanGuard.of((6, 0), RAISING[after:]).on
    assert not OrphanGuard.of((5, 0), LOWERING).on
    assert OrphanGuard.of((5, 0), LOWERING[1:]).on, "it was being lowered: the config servers' version is lowered first"
    assert not OrphanGuard.of((7, 0), [version(version="6.0", targetVersion="7.0"), version(version="7.0")]).on
    assert not OrphanGuard.of((7, 0), [version(version="7.0")]).on
    assert (OrphanGuard.of((5, 0), ()).on, OrphanGuard.of((6, 0), ()).on) == (True, False)


def test_chunks_may_move_once_the_version_is_raised_and_not_before() -> None:
    guard = OrphanGuard(on=True)
    guard.take("config", RAISING[0], AT)
    with pytest.raises(SourceUnsupported):
        guard.take("sa", entry("migrationCoordinators", "i"), AT)
    guard.take("config", RAISING[1], AT)
    guard.take("sa", entry("migrationCoordinators", "i"), AT)


def test_a_version_that_is_lowered_ends_the_watch() -> None:
    with pytest.raises(SourceUnsupported, match=r"lowered to 5\.0"):
        OrphanGuard(on=False).take("config", LOWERING[0], AT)
