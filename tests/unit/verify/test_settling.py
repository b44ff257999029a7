"""Differences are distinguished from changes that are not yet replicated."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.bson_bytes import document_of
from verify.comparison import LOOKS, Look, Passed, Settling
from verify.report import DifferenceKind, DocumentDifference

KEYS = [bson.encode({"_id": number}) for number in range(6)]


@dataclass(slots=True)
class Replication:
    """A source, and a target that follows it with a lag and never gets the changes of the `broken` keys.

    Each value is written only once, so no document returns to an earlier state.
    """

    chance: random.Random
    broken: Collection[int] = ()
    busy: Collection[int] = ()
    """Keys that are written at each opportunity."""
    source: dict[int, int] = field(default_factory=dict)
    target: dict[int, int] = field(default_factory=dict)
    log: list[tuple[int, int | None]] = field(default_factory=list)
    applied: int = 0

    def write(self, key: int) -> None:
        value = None if key in self.source and self.chance.random() < 0.3 else len(self.log)
        if value is None:
            del self.source[key]
        else:
            self.source[key] = value
        self.log.append((key, value))

    def replicate(self, until: int) -> None:
        for key, value in self.log[self.applied : until]:
            if key in self.broken:
                continue
            if value is None:
                self.target.pop(key, None)
            else:
                self.target[key] = value
        self.applied = max(self.applied, until)

    def look(self, keys: Collection[bytes]) -> Iterator[Look]:
        for raw in keys:
            key = bson.decode(raw)["_id"]
            target = documents(self.target, key)
            self.go_on()
            yield Look(raw, documents(self.source, key), target)

    def wait(self) -> Passed:
        noted = len(self.log)
        self.go_on()
        self.replicate(self.chance.randint(noted, len(self.log)))
        return Passed.PASSED

    def go_on(self) -> None:
        for key in self.busy:
            if self.chance.random() < 0.5:
                self.write(key)
        if self.chance.random() < 0.5:
            self.replicate(self.chance.randint(self.applied, len(self.log)))


def documents(table: dict[int, int], key: int) -> tuple[bytes, ...]:
    return (bson.encode({"_id": key, "value": table[key]}),) if key in table else ()


def key_of(difference: DocumentDifference) -> int:
    return int(difference.key)


@given(seed=st.integers(0, 10**6), writes=st.lists(st.integers(0, 5), max_size=30), broken=st.sets(st.integers(0, 5)))
@settings(max_examples=200)
def test_beside_replication_exactly_the_broken_keys_are_differences(
    seed: int, writes: list[int], broken: set[int]
) -> None:
    replication = Replication(random.Random(seed), broken)
    for key in writes:
        replication.write(key)
    found = Settling(look=replication.look, wait=replication.wait).settle(KEYS)
    replication.replicate(len(replication.log))
    differing = {key for key in range(6) if replication.source.get(key) != replication.target.get(key)}
    assert {key_of(each) for each in found} == differing
    assert all(each.kind is not DifferenceKind.UNSETTLED for each in found)


@given(seed=st.integers(0, 10**6), busy=st.sets(st.integers(0, 5)), broken=st.sets(st.integers(0, 5)))
@settings(max_examples=200)
def test_keys_that_are_written_to_all_the_time_are_never_called_different(
    seed: int, busy: set[int], broken: set[int]
) -> None:
    replication = Replication(random.Random(seed), broken, busy)
    for key in range(6):
        replication.write(key)
    for each in Settling(look=replication.look, wait=replication.wait).settle(KEYS):
        if each.kind is not DifferenceKind.UNSETTLED:
            assert key_of(each) in broken


def at_rest(source: dict[int, int], target: dict[int, int]) -> list[DocumentDifference]:
    def look(keys: Collection[bytes]) -> Iterator[Look]:
        for raw in keys:
            key = bson.decode(raw)["_id"]
            yield Look(raw, documents(source, key), documents(target, key))

    return Settling(look=look, wait=lambda: Passed.STANDING).settle(KEYS)


def test_each_kind_of_difference_says_its_key_and_what_differs() -> None:
    assert at_rest({0: 1, 1: 1, 3: 1}, {1: 2, 2: 1, 3: 1}) == [
        DocumentDifference(DifferenceKind.MISSING, "0"),
        DocumentDifference(DifferenceKind.CHANGED, "1", ("value is 1 at the source, 2 at the target",)),
        DocumentDifference(DifferenceKind.EXTRA, "2"),
    ]


def test_a_key_that_never_rests_is_unsettled_after_some_looks() -> None:
    looks = 0

    def look(keys: Collection[bytes]) -> Iterator[Look]:
        nonlocal looks
        looks += 1
        yield Look(KEYS[0], documents({0: looks}, 0), ())

    (found,) = Settling(look=look, wait=lambda: Passed.PASSED).settle(KEYS[:1])
    assert (found.kind, looks) == (DifferenceKind.UNSETTLED, LOOKS)


def test_replication_that_does_not_come_past_leaves_keys_unsettled() -> None:
    replication = Replication(random.Random(1))
    replication.source[0] = 1
    (found,) = Settling(look=replication.look, wait=lambda: Passed.OVERDUE).settle(KEYS[:1])
    assert found.kind is DifferenceKind.UNSETTLED
    assert "did not pass" in found.details[0]


@pytest.mark.parametrize(("target", "expected"), [((KEYS[0],), []), ((), [DifferenceKind.MISSING])])
def test_under_a_shared_name_one_of_the_documents_must_stand(
    target: tuple[bytes, ...], expected: list[DifferenceKind]
) -> None:
    sources = (KEYS[0], bson.encode({"_id": 0, "other": 1}))

    def look(keys: Collection[bytes]) -> Iterator[Look]:
        yield Look(KEYS[0], sources, target)

    found = Settling(look=look, wait=lambda: Passed.STANDING, fan_in=True).settle(KEYS[:1])
    assert [each.kind for each in found] == expected


def test_nothing_is_waited_for_when_there_is_nothing_to_settle() -> None:
    def never() -> Passed:
        raise AssertionError("waited")

    assert Settling(look=lambda keys: (), wait=never).settle([]) == []


def settled(source: dict[str, object], target: dict[str, object]) -> DocumentDifference:
    look = Look(KEYS[0], (bson.encode(source),), (bson.encode(target),))
    (found,) = Settling(look=lambda _: [look], wait=lambda: Passed.STANDING).settle([KEYS[0]])
    return found


def test_another_order_of_fields_is_a_difference_of_its_own_kind() -> None:
    ordered, other = {"_id": 0, "a": {"b": 1, "c": 2}}, {"_id": 0, "a": {"c": 2, "b": 1}}
    assert settled(ordered, other).kind is DifferenceKind.REORDERED
    assert settled(ordered, {"_id": 0, "a": {"c": 2, "b": 1.0}}).kind is DifferenceKind.CHANGED


def test_a_difference_has_the_digests_of_what_each_side_has() -> None:
    found = settled({"_id": 0, "a": 1}, {"_id": 0, "a": 2})
    assert found.source != found.target
    assert (len(found.source), len(found.target)) == (32, 32)
    (missing,) = Settling(look=lambda _: [Look(KEYS[0], (KEYS[0],), ())], wait=lambda: Passed.STANDING).settle(
        [KEYS[0]]
    )
    assert (len(missing.source), missing.target) == (32, "")


def test_bytes_that_decode_to_the_same_value_differ_in_more_than_their_order() -> None:
    """A repeated field; a symbol, which PyMongo decodes as a string."""
    field, text = b"\x10a\x00\x01\x00\x00\x00", b"a\x00\x02\x00\x00\x00x\x00"
    for source, target in (([field], [field, field]), ([b"\x02" + text], [b"\x0e" + text])):
        look = Look(KEYS[0], (document_of(source),), (document_of(target),))
        (found,) = _settling_of(look).settle([KEYS[0]])
        assert found.kind is DifferenceKind.CHANGED


def _settling_of(look: Look) -> Settling:
    return Settling(look=lambda _: [look], wait=lambda: Passed.STANDING)
