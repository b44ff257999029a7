from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.etcd.protocol import KeyValue
from coordination.view import KeyGroup, MirroredValue


def kv(rev: int) -> KeyValue:
    return KeyValue(key="k", value=b"", create_rev=1, mod_rev=rev)


changes = st.lists(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(1, 9)), max_size=4), max_size=8
)


@settings(max_examples=200)
@given(changes, st.data())
def test_a_group_knows_what_changed_since_any_earlier_one(
    history: list[list[tuple[str, int | None]]], data: st.DataObject
) -> None:
    groups = [KeyGroup({"a": kv(1)})]
    for each in history:
        group = groups[-1].then()
        for key, rev in each:
            group.change(key, kv(rev) if rev is not None else None)
        groups.append(group)
    first = data.draw(st.integers(0, len(groups) - 1))
    last = data.draw(st.integers(first, len(groups) - 1))
    before, now = groups[first], groups[last]
    differing = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    assert differing <= now.changed_since(before) <= {key for each in history[first:last] for key, _ in each}


def test_groups_of_different_origins_may_differ_anywhere() -> None:
    assert KeyGroup({"a": kv(1)}).changed_since(KeyGroup({"b": kv(1)})) == {"a", "b"}


def test_what_a_group_remembers_is_bounded() -> None:
    group = first = KeyGroup({"a": kv(1)})
    for rev in range(10_000):
        group = group.then()
        group.change("a", kv(rev))
    assert len(group._changes) < 2_000
    assert group.changed_since(first) == {"a"}


def test_a_value_that_was_read_is_kept_as_what_it_means() -> None:
    kept = MirroredValue.of(KeyValue(key="/a", value=b"17", create_rev=1_000, mod_rev=2_000, lease=5))
    assert kept == MirroredValue.of(KeyValue(key="/a", value=b"17", create_rev=1_000, mod_rev=2_000, lease=5))
    read: list[KeyValue] = []

    def number(kv: KeyValue) -> int:
        read.append(kv)
        return int(kv.value)

    assert (kept.read_once(number), kept.read_once(number)) == (17, 17)
    assert [(kv.key, kv.value, kv.create_rev, kv.mod_rev) for kv in read] == [("/a", b"17", 1_000, 2_000)]
    assert (kept.value, kept.lease) == (b"", 5)


def test_a_value_that_cannot_be_read_is_still_there() -> None:
    kept = MirroredValue.of(KeyValue(key="/a", value=b"x", create_rev=1, mod_rev=1))
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            kept.read_once(lambda kv: int(kv.value))
        assert kept.value == b"x"
