"""Verification while documents are written and arrive with a lag."""

from __future__ import annotations

from datetime import timedelta

from tests.component.verify.naive_replication import NaiveReplication, Writer
from tests.component.verify.verified import Sides, Verify
from tests.until import PATIENCE_SECONDS
from verify.report import Aspect, DifferenceKind, Outcome
from verify.verification import Wishes

KEYS = 400
WISHES = Wishes(range_bytes=20_000)


def test_what_is_on_its_way_is_no_difference(sides: Sides, verify: Verify) -> None:
    sides.on_both("hot", [{"_id": number, "pad": "x" * 200} for number in range(KEYS)])
    with NaiveReplication(sides) as replication, Writer(sides, "hot", KEYS) as writer:
        assert writer.begun.wait(PATIENCE_SECONDS)
        verified = verify(wishes=WISHES, checkpoints=replication)
    assert verified.report.outcome is Outcome.EQUAL


def test_what_is_lost_is_found_among_what_is_on_its_way(sides: Sides, verify: Verify) -> None:
    lost = {"lost 1", "lost 2"}
    sides.on_both("hot", [{"_id": number, "pad": "x" * 200} for number in range(KEYS)])
    with NaiveReplication(sides, lost=lost) as replication, Writer(sides, "hot", KEYS):
        sides.source.hot.insert_many([{"_id": key} for key in sorted(lost)])
        verified = verify(wishes=WISHES, checkpoints=replication)
    documents = verified.table("hot").documents
    assert documents is not None
    assert [(each.kind, each.key) for each in documents.differences] == [
        (DifferenceKind.MISSING, '"lost 1"'),
        (DifferenceKind.MISSING, '"lost 2"'),
    ]
    assert verified.result("hot", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT


def test_on_a_quiet_source_a_difference_is_settled_too(sides: Sides, verify: Verify) -> None:
    """On a quiet source no time passes its last write, so the verification makes the source write a note."""
    sides.on_both("rest", [{"_id": 1}])
    with NaiveReplication(sides, lost={2}) as replication:
        sides.source.rest.insert_one({"_id": 2})
        documents = verify(checkpoints=replication).table("rest").documents
    assert documents is not None
    assert [each.kind for each in documents.differences] == [DifferenceKind.MISSING]


def test_replication_that_stands_still_leaves_the_difference_unsettled(sides: Sides, verify: Verify) -> None:
    sides.on_both("rest", [{"_id": 1}])
    sides.source.rest.insert_one({"_id": 2})
    standing = NaiveReplication(sides)
    verified = verify(checkpoints=standing, wishes=Wishes(patience=timedelta(seconds=0.2)))
    assert verified.result("rest", Aspect.DOCUMENTS).outcome is Outcome.UNSETTLED
    assert not verified.report.succeeded


def test_an_index_on_its_way_is_no_difference(sides: Sides, verify: Verify) -> None:
    """The target builds it when replication reaches it."""

    class Building(NaiveReplication):
        def run(self) -> None:
            self._sides.target.built.create_index("a")
            super().run()

    sides.on_both("built", [{"_id": 1}])
    sides.source.built.create_index("a")
    with Building(sides) as replication:
        verified = verify(checkpoints=replication)
    assert verified.report.outcome is Outcome.EQUAL
