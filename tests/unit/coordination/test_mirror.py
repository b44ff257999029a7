from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.errors import CoordinationRefused, CoordinationUnavailable, InvariantError
from coordination.etcd.protocol import Delete, Put, WatchUpdate
from coordination.mirror import Mirror
from coordination.view import Replica, View
from tests.memory_etcd import MemoryClient, MemoryEtcd, MemoryWatch

AT_ONCE = timedelta(0)
LONG = timedelta(hours=1)
PREFIX = "/s/"
APART = "/s/~"


def put(server: MemoryEtcd, **values: bytes) -> int:
    return server.txn([], [Put(PREFIX + key.replace("_", "/"), value) for key, value in values.items()]).revision


def follow(mirror: Mirror) -> View:
    while mirror.poll(AT_ONCE):
        pass
    return mirror.view()


def values(view: View) -> dict[str, bytes]:
    return {key: kv.value for group in view.groups.values() for key, kv in group.items()}


@pytest.fixture
def server() -> MemoryEtcd:
    return MemoryEtcd()


@pytest.fixture
def client(server: MemoryEtcd) -> MemoryClient:
    return server.connect()


@pytest.fixture
def mirror(client: MemoryClient) -> Mirror:
    return Mirror(client, PREFIX)


def test_a_view_holds_what_the_snapshot_held_and_what_came_after(server: MemoryEtcd, mirror: Mirror) -> None:
    put(server, a=b"1", b_c=b"2")
    follow(mirror)
    last = put(server, a=b"3")
    view = follow(mirror)
    assert values(view) == {"/s/a": b"3", "/s/b/c": b"2"}
    assert view.revision == last


def test_a_view_taken_never_changes(server: MemoryEtcd, mirror: Mirror) -> None:
    put(server, a=b"1", b=b"1")
    view = follow(mirror)
    put(server, a=b"2")
    server.txn([], [Delete("/s/b")])
    follow(mirror)
    assert values(view) == {"/s/a": b"1", "/s/b": b"1"}


def test_groups_that_did_not_change_are_shared_between_views(server: MemoryEtcd, mirror: Mirror) -> None:
    put(server, schema_1=b"", schema_2=b"", barrier=b"1")
    before = follow(mirror)
    put(server, barrier=b"2")
    after = follow(mirror)
    assert after.group("/s/schema/") is before.group("/s/schema/")
    assert after.group("/s/") is not before.group("/s/")


def test_each_step_applies_one_whole_revision(server: MemoryEtcd, mirror: Mirror) -> None:
    put(server, a=b"0", b=b"0")
    follow(mirror)
    put(server, a=b"1", b=b"1")
    put(server, a=b"2", b=b"2")
    mirror.poll(AT_ONCE)
    assert values(mirror.view()) == {"/s/a": b"1", "/s/b": b"1"}


def test_a_cut_connection_loses_nothing(server: MemoryEtcd, client: MemoryClient, mirror: Mirror) -> None:
    put(server, a=b"1")
    follow(mirror)
    client.connected = False
    with pytest.raises(CoordinationUnavailable):
        mirror.poll(AT_ONCE)
    put(server, b=b"2")
    client.connected = True
    assert values(follow(mirror)) == {"/s/a": b"1", "/s/b": b"2"}


def test_what_was_deleted_in_compacted_history_is_gone(
    server: MemoryEtcd, client: MemoryClient, mirror: Mirror
) -> None:
    put(server, a=b"1", b=b"1")
    follow(mirror)
    client.connected = False
    with pytest.raises(CoordinationUnavailable):
        mirror.poll(AT_ONCE)
    server.txn([], [Delete("/s/a")])
    server.compact(put(server, b=b"2"))
    client.connected = True
    assert values(follow(mirror)) == {"/s/b": b"2"}


def test_progress_moves_a_view_of_a_quiet_prefix(server: MemoryEtcd, mirror: Mirror) -> None:
    put(server, a=b"1")
    follow(mirror)
    elsewhere = server.txn([], [Put("/other", b"")]).revision
    assert follow(mirror).revision < elsewhere
    server.notify_progress()
    assert follow(mirror).revision == elsewhere


def test_a_state_older_than_asked_for_is_not_handed_out(
    server: MemoryEtcd, client: MemoryClient, mirror: Mirror
) -> None:
    seen = put(server, a=b"1")
    follow(mirror)
    client.seen_limit = seen
    committed = put(server, a=b"2")
    follow(mirror)
    with pytest.raises(CoordinationUnavailable, match=f"not at revision {committed}.*last seen {seen}"):
        mirror.at_least(committed, AT_ONCE)
    client.seen_limit = None
    follow(mirror)
    assert mirror.at_least(committed, AT_ONCE).revision == committed


def test_progress_of_a_member_that_lags_never_moves_a_view_back() -> None:
    replica = Replica()
    replica.apply(WatchUpdate(revision=9))
    replica.apply(WatchUpdate(revision=7))
    assert replica.view().revision == 9


def test_listeners_are_called_for_each_revision(server: MemoryEtcd, mirror: Mirror) -> None:
    told: list[int] = []
    mirror.listen(lambda: told.append(mirror.view().revision))
    revisions = [put(server, a=b"1")]
    follow(mirror)
    revisions += [put(server, a=b"2"), put(server, a=b"3")]
    follow(mirror)
    assert told == revisions


def test_an_etcd_that_went_back_in_time_is_never_followed(
    server: MemoryEtcd, client: MemoryClient, mirror: Mirror
) -> None:
    put(server, a=b"1")
    put(server, a=b"2")
    follow(mirror)
    client.connected = False
    with pytest.raises(CoordinationUnavailable):
        mirror.poll(AT_ONCE)
    client.connected = True
    client.server = MemoryEtcd()
    with pytest.raises(InvariantError, match="restored from a backup"):
        mirror.poll(AT_ONCE)


def test_a_mirror_that_may_not_watch_raises_the_refusal(server: MemoryEtcd) -> None:
    class NoWatches(MemoryClient):
        def watch(self, prefix: str, start_rev: int, below: str = "") -> MemoryWatch:
            raise CoordinationRefused("etcd: permission denied")

    mirror = Mirror(NoWatches(server), PREFIX)
    mirror.start()
    with pytest.raises(CoordinationRefused):
        mirror.at_least(server.revision + 1, timedelta(seconds=5))
    with pytest.raises(CoordinationRefused):
        mirror.view()
    mirror.stop()


def test_keys_apart_are_mirrored_while_they_are_needed(server: MemoryEtcd) -> None:
    mirror = Mirror(server.connect(), PREFIX, apart=APART)
    put(server, a=b"1", **{"~r_x": b"1"})
    assert values(follow(mirror)) == {"/s/a": b"1"}
    last = put(server, **{"~r_x": b"2"})
    assert follow(mirror).revision < last
    with pytest.raises(CoordinationUnavailable):
        mirror.at_least(0, AT_ONCE, whole=True)

    mirror.need_apart_for(LONG)
    whole = follow(mirror)
    assert values(whole) == {"/s/a": b"1", "/s/~r/x": b"2"}
    assert mirror.at_least(last, AT_ONCE, whole=True) is whole
    put(server, **{"~r_x": b"3"})
    assert values(follow(mirror)) == {"/s/a": b"1", "/s/~r/x": b"3"}

    mirror.need_apart_for(timedelta(0))
    put(server, b=b"1")
    assert values(follow(mirror)) == {"/s/a": b"1", "/s/b": b"1"}


def test_keys_from_the_end_on_are_never_mirrored(server: MemoryEtcd) -> None:
    mirror = Mirror(server.connect(), PREFIX, apart=APART, end=f"{PREFIX}~~")
    mirror.need_apart_for(LONG)
    put(server, a=b"1", **{"~r_x": b"1", "~~l_x": b"1"})
    assert values(follow(mirror)) == {"/s/a": b"1", "/s/~r/x": b"1"}
    put(server, **{"~~l_x": b"2"})
    put(server, a=b"2")
    assert values(follow(mirror)) == {"/s/a": b"2", "/s/~r/x": b"1"}


def test_an_etcd_that_went_back_is_told_as_such_when_keys_apart_are_taken_in(server: MemoryEtcd) -> None:
    client = server.connect()
    mirror = Mirror(client, PREFIX, apart=APART)
    put(server, a=b"1")
    follow(mirror)
    client.server = MemoryEtcd()
    mirror.need_apart_for(LONG)
    with pytest.raises(InvariantError, match="restored from a backup"):
        mirror.poll(AT_ONCE)


def test_what_has_not_changed_is_the_same_object_after_a_new_snapshot(server: MemoryEtcd) -> None:
    mirror = Mirror(server.connect(), PREFIX, apart=APART)
    put(server, g_a=b"1", h_a=b"1", h_b=b"1", **{"~r_x": b"1"})
    before = follow(mirror)
    put(server, h_b=b"2")
    mirror.need_apart_for(LONG)
    after = follow(mirror)
    assert after.group("/s/g/") is before.group("/s/g/")
    assert after.get("/s/h/a") is before.get("/s/h/a")
    put(server, g_a=b"2")
    follow(mirror)
    assert values(before) == {"/s/g/a": b"1", "/s/h/a": b"1", "/s/h/b": b"1"}
    assert values(after) == {"/s/g/a": b"1", "/s/h/a": b"1", "/s/h/b": b"2", "/s/~r/x": b"1"}


names = st.sampled_from(["a", "b", "g/a", "g/b", "h/a", "~r/a", "~r/b"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(names, min_size=1, max_size=3, unique=True)),
        st.tuples(st.just("delete"), st.lists(names, min_size=1, max_size=2, unique=True)),
        st.tuples(st.sampled_from(["poll", "cut", "compact", "view", "need", "need no more"]), st.just([])),
    ),
    max_size=25,
)


@settings(max_examples=200)
@given(steps)
def test_every_view_is_the_state_of_etcd_at_its_revision(script: list[tuple[str, list[str]]]) -> None:
    server = MemoryEtcd()
    client = server.connect()
    mirror = Mirror(client, PREFIX, apart=APART)
    truth: dict[int, dict[str, bytes]] = {server.revision: {}}
    taken: list[tuple[View, bool]] = []
    needed = False
    for count, (step, keys) in enumerate([*script, ("poll", [])]):
        match step:
            case "put":
                server.txn([], [Put(PREFIX + key, str(count).encode()) for key in keys])
            case "delete":
                server.txn([], [Delete(PREFIX + key) for key in keys])
            case "cut":
                client.connected = False
                with pytest.raises(CoordinationUnavailable):
                    mirror.poll(AT_ONCE)
                client.connected = True
            case "compact":
                server.compact(server.revision)
            case "need":
                mirror.need_apart_for(LONG)
                needed = True
            case "need no more":
                mirror.poll(AT_ONCE)  # a need lasts until the mirror has met it
                mirror.need_apart_for(timedelta(0))
                needed = False
            case "poll":
                mirror.poll(AT_ONCE)
        truth[server.revision] = {kv.key: kv.value for kv in server.range(PREFIX).items}
        taken.append((mirror.view(), mirror.whole))
    last = follow(mirror)
    taken.append((last, mirror.whole))
    assert mirror.whole is needed
    assert values(last) == {key: value for key, value in truth[server.revision].items() if needed or key < APART}
    for view, whole in taken:
        expected = truth.get(view.revision, {})
        assert values(view) == {key: value for key, value in expected.items() if whole or key < APART}
    assert [view.revision for view, _ in taken] == sorted(view.revision for view, _ in taken)


def test_a_need_does_not_wait_for_the_end_of_a_poll(server: MemoryEtcd, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    class Told(MemoryWatch):
        def next(self, timeout: timedelta) -> WatchUpdate | None:
            waits.set()
            return super().next(timeout)

    class Client(MemoryClient):
        def watch(self, prefix: str, start_rev: int, below: str = "") -> MemoryWatch:
            return Told(self, prefix, start_rev, below)

    monkeypatch.setattr("coordination.mirror._POLL", timedelta(days=1))
    mirror = Mirror(Client(server), PREFIX, apart=APART)
    last = put(server, a=b"1", **{"~r_x": b"1"})
    mirror.start()
    assert waits.wait(60)
    mirror.need_apart_for(LONG)
    whole = mirror.at_least(last, timedelta(seconds=60), whole=True)
    assert values(whole) == {"/s/a": b"1", "/s/~r/x": b"1"}
    assert mirror.interrupted_by == ""
    mirror.stop()
