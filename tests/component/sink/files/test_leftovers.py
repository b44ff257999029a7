"""What a node that is gone wrote and never committed is removed; nothing that a reader needs ever is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from changefeed.errors import SinkRefused, SinkUnavailable
from sink.messages.files.feed_log import FileLeftovers
from sink.messages.files.store import Store
from sink.receipt import Commit
from tests.component.sink.files.feed import IDENTITY, Feed, copied
from tests.component.sink.vocabulary import A, described, insert, moment

_GONE, _ALIVE = 7, 8


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    return _grown(f"file://{tmp_path}/orders")


def _grown(place: str) -> Feed:
    feed = Feed(place)
    feed.window(100, 110, [insert(A, 101, 1)], epoch=_GONE)
    feed.committer(_GONE).commit(Commit(ranges={}, copies=(copied(feed, 100, 103, [{"_id": 3, "at": 103}]),)))
    feed.window(110, 120, [insert(A, 112, 2)], epoch=_ALIVE)
    for epoch in (_GONE, _ALIVE):
        feed.written([insert(A, 119, 9)], epoch)
    feed.marks.mark(moment(120))
    return feed


def _is(*epochs: int) -> Callable[[int], bool]:
    return lambda epoch: epoch in epochs


def _sweep(feed: Feed, *gone: int) -> int:
    return FileLeftovers(IDENTITY, feed.store).sweep(_is(*gone))


def _files(feed: Feed, epoch: int) -> int:
    return len(feed.store.names(f"data/{epoch}"))


def test_only_what_a_gone_node_did_not_commit_is_removed(place: str) -> None:
    feed = _grown(place)
    shown = feed.read()
    assert {"i1@101", "r3@103", "i2@112"} < set(shown)
    assert _sweep(feed) == 0
    assert (_files(feed, _GONE), _files(feed, _ALIVE)) == (3, 2)
    assert _sweep(feed, _GONE) == 1
    assert (_files(feed, _GONE), _files(feed, _ALIVE)) == (2, 2)
    assert feed.read() == shown


def test_a_node_that_was_thought_gone_commits_nothing_more(feed: Feed) -> None:
    lives_on = feed.committer(_GONE)
    late = Commit(ranges={}, files=feed.written([insert(A, 119, 5)], _GONE), tables=(described(A),))
    lives_on.commit(late)
    shown = feed.read()
    _sweep(feed, _GONE)
    for committer in (lives_on, feed.committer(_GONE)):
        with pytest.raises(SinkRefused, match="counts as gone"):
            committer.commit(late)
    assert feed.read() == shown


def test_what_a_task_writes_later_is_removed_in_the_next_term(feed: Feed) -> None:
    assert _sweep(feed, _GONE) == 1
    feed.written([insert(A, 119, 6)], _GONE)
    log = feed.store.names(f"log/{_GONE}")
    assert _sweep(feed, _GONE) == 1
    assert feed.store.names(f"log/{_GONE}") == log


def test_a_node_that_committed_nothing_leaves_no_folder(feed: Feed) -> None:
    feed.written([insert(A, 119, 6)], 9)
    assert _sweep(feed, 9) == 1
    assert "9" not in feed.store.names("data")
    with pytest.raises(SinkRefused):
        feed.committer(9).commit(Commit(ranges={}, files=feed.written([insert(A, 119, 6)], 9)))


def test_a_listing_that_is_old_costs_no_file(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system, where a manifest of a moment ago may not be listed yet."""
    shown = feed.read()
    kind: type[Store] = type(feed.store)
    names = kind.names

    def old(store: Store, folder: str, after: str = "") -> list[str]:
        return names(store, folder, after)[: -1 if folder == f"log/{_GONE}/000000000" else None]

    monkeypatch.setattr(kind, "names", old)
    assert _sweep(feed, _GONE) == 1
    monkeypatch.undo()
    assert feed.read() == shown


def test_a_manifest_that_is_missing_ends_the_sweep(feed: Feed) -> None:
    feed.store.remove(f"log/{_GONE}/000000000/000000000000.json")
    with pytest.raises(SinkUnavailable, match="Nothing was removed"):
        _sweep(feed, _GONE)
    assert _files(feed, _GONE) == 3


def test_the_directory_of_another_changefeed_is_left_alone(feed: Feed) -> None:
    with pytest.raises(Exception, match="needs an empty place"):
        FileLeftovers(type(IDENTITY)(feed="other", life="c/1"), feed.store).sweep(_is(_GONE))
    assert _files(feed, _GONE) == 3
