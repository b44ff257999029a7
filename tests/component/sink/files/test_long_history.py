"""What a window costs a reader does not depend on how many there were before: manifests are summed up, and forgotten once they were shown."""

from __future__ import annotations

from bisect import bisect_right, insort

import pytest

from changefeed.position import Window
from sink.messages.files.feed_log import FileLeftovers
from sink.receipt import Commit
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import MessageGap, Watermark
from sluice_client.file_reader import Reader
from sluice_client.manifest import GROUP
from tests.component.sink.files.feed import IDENTITY, Feed
from tests.component.sink.vocabulary import A, described, insert, moment
from tests.simulation.messages.store import ModelStore
from tests.work import lines_run

_EPOCH = 7
_START = 1000


class CountedStore(ModelStore):
    """Which files were read. A listing costs what it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []
        self._listed: dict[str, list[str]] = {}

    def create(self, name: str, content: bytes) -> bool:
        made = super().create(name, content)
        folder, _, last = name.rpartition("/")
        while made and last not in (listed := self._listed.setdefault(folder, [])):
            insort(listed, last)
            folder, _, last = folder.rpartition("/")
        return made

    def read(self, name: str) -> bytes | None:
        self.reads.append(name)
        return super().read(name)

    def names(self, folder: str, after: str = "") -> list[str]:
        listed = self._listed.get(folder, [])
        return listed[bisect_right(listed, after) :]

    def remove(self, name: str) -> None:
        super().remove(name)
        folder, _, last = name.rpartition("/")
        self._listed[folder].remove(last)


def _grown(windows: int) -> tuple[Feed, CountedStore]:
    """A feed with so many manifests, each of one second, of which each hundredth has a row. The file of the others has one from before."""
    store = CountedStore()
    feed = Feed("file:///feed?compression=none", store)
    committer = feed.committer(_EPOCH)
    earlier = feed.written([insert(A, 1, 0)], _EPOCH)
    for at in range(_START, _START + windows):
        files = feed.written([insert(A, at, at)], _EPOCH) if at % 100 == 0 else earlier
        ranges = {A: Window(moment(at), moment(at + 1))}
        committer.commit(Commit(ranges=ranges, files=files, tables=(described(at=moment(_START)),)))
    feed.marks.mark(moment(_START + windows))
    return feed, store


def _sum_up(feed: Feed, *gone: int) -> None:
    FileLeftovers(IDENTITY, feed.store).sweep(lambda epoch: epoch in gone)


def test_a_reader_finds_in_sums_what_the_manifests_say() -> None:
    feed, store = _grown(3 * GROUP + 5)
    shown = feed.read()
    assert len(shown) == 9
    _sum_up(feed)
    sums = [name for name in store.names(f"log/{_EPOCH}") if "-" in name]
    assert len(sums) == 3
    store.reads.clear()
    assert feed.read() == shown
    assert len([name for name in store.reads if name.startswith("log/")]) == 3 + 5
    _sum_up(feed, _EPOCH)
    assert feed.read() == shown
    before = dict(store.files)
    _sum_up(feed, _EPOCH)
    assert store.files == before


def test_a_reader_that_goes_on_leaves_out_the_sums_before_its_mark() -> None:
    feed, store = _grown(3 * GROUP - 5)
    _sum_up(feed, _EPOCH)
    after = Watermark(moment(_START + 2 * GROUP + 1))
    store.reads.clear()
    found = feed.read(Reader(FeedDirectory(store), after))
    assert [each for each in found if each.startswith("i")] == ["i1600@1600", "i1700@1700"]
    assert len([name for name in store.reads if name.startswith("log/")]) == 1


def test_a_sum_that_is_missing_costs_the_reads_of_its_manifests() -> None:
    feed, store = _grown(2 * GROUP)
    shown = feed.read()
    _sum_up(feed)
    store.remove(f"log/{_EPOCH}/{store.names(f'log/{_EPOCH}')[1]}")
    assert feed.read() == shown
    store.remove(f"log/{_EPOCH}/000000000/000000000003.json")
    with pytest.raises(MessageGap, match=r"000000000003\.json"):
        feed.read()


def test_a_window_costs_the_same_however_many_there_were() -> None:
    assert _cost_after(8 * GROUP) < 1.2 * _cost_after(GROUP)


def _cost_after(windows: int) -> int:
    """What one more costs a reader that has shown these, in lines."""
    feed, store = _grown(windows)
    _sum_up(feed)
    reader = Reader(FeedDirectory(store))
    assert feed.read(reader)
    at = _START + windows
    rows = feed.written([insert(A, at, 1)], _EPOCH)
    feed.committer(_EPOCH).commit(Commit(ranges={A: Window(moment(at), moment(at + 1))}, files=rows))
    feed.marks.mark(moment(at + 1))
    shown: list[str] = []
    cost = lines_run(lambda: shown.extend(feed.read(reader)))
    assert shown == [f"i1@{at}"]
    return cost
