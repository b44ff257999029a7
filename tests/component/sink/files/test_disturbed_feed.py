"""A changefeed's life in a bucket, disturbed at each request: what is read back is what an undisturbed one has written (W1 to W4).

Each step is run again until it has worked, as owner and processor do. `dies`: nothing reaches the server from the disturbed request on, and
another node, with another epoch, runs the step that was not finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count, cycle, product

import pytest

from changefeed.config.sinks.file_options import BucketPlace, FileSinkOptions
from changefeed.documents.document import Document
from changefeed.errors import SinkUnavailable
from changefeed.event import DdlType
from changefeed.position import Window
from changefeed.table import TableName
from devstack.s3.faulty_proxy import Fault, FaultyProxy, Request
from sink.ddl import CreateTable, RenameTable
from sink.messages.files.bucket import ObjectBucket
from sink.messages.files.bucket_client import bucket_client
from sink.messages.files.feed_log import FileLeftovers
from sink.receipt import Commit
from sink.row import RowChange
from sluice_client.extended_json import to_json
from sluice_client.feed_reader import StoredMessage
from tests.component.sink.files.feed import IDENTITY, Feed, copied
from tests.component.sink.vocabulary import NOTHING_SEEN, A, B, copy_end, described, insert, moment, recorded, text_of
from tests.e2e.node.event_judge import judge

_FAULTS = (Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE_REQUEST, Fault.BUSY)
_TRIES = 5
_SPREAD = 19


def _store(uri: str) -> ObjectBucket:
    """A request is tried once, so that the layers above see each fault."""
    place = FileSinkOptions.parse(uri).place
    assert isinstance(place, BucketPlace)
    return ObjectBucket(place, lambda: bucket_client(place, attempts=1))


class _Life:
    """The same messages, whoever writes them. `epoch`: that of the node at work."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.epoch = 7
        self._feed: Feed | None = None

    @property
    def feed(self) -> Feed:
        if self._feed is None:
            self._feed = Feed(self._uri, _store(self._uri))
        return self._feed

    def die(self) -> None:
        self._feed, self.epoch = None, self.epoch + 1

    def steps(self) -> Iterator[Callable[[], object]]:
        rename = RenameTable(name=TableName("shop", "a"), to=TableName("shop", "z"), replaces=False)
        create = CreateTable(name=TableName("shop", "b"), options=Document.of({}))
        yield lambda: self.feed
        yield lambda: self._copy(102)
        yield lambda: self._window(100, 106, [insert(A, 101, 1), insert(A, 103, 7), insert(A, 105, 2)])
        yield lambda: self.feed.ddl.copied(copy_end(100))
        yield lambda: self.feed.marks.mark(moment(106))
        yield lambda: self.feed.ddl.apply(rename, NOTHING_SEEN, recorded(DdlType.RENAME, 106))
        yield lambda: self.feed.ddl.apply(create, NOTHING_SEEN, recorded(DdlType.CREATE, 107, B))
        yield lambda: self._window(106, 110, [insert(A, 107, 3, "z"), insert(A, 109, 1, "z")])
        yield self._window_of_b
        yield self._sweep
        yield lambda: self.feed.marks.mark(moment(110))

    def _copy(self, at: int) -> None:
        self.feed.ddl.begin([described(A, copied=True)])
        receipt = copied(self.feed, 100, at, [{"_id": 7, "at": at}], self.epoch)
        self.feed.committer(self.epoch).commit(Commit(ranges={}, copies=(receipt,)))

    def _window(self, start: int, end: int, changes: Sequence[RowChange]) -> None:
        self.feed.window(start, end, changes, A, epoch=self.epoch)

    def _window_of_b(self) -> None:
        feed, files = self.feed, self.feed.written([insert(B, 108, 4, "b")], self.epoch)
        tables = (described(B, "b", moment(107, 0)),)
        ranges = {B: Window(moment(107, 0), moment(110))}
        feed.committer(self.epoch).commit(Commit(ranges=ranges, files=files, tables=tables))

    def _sweep(self) -> None:
        FileLeftovers(IDENTITY, self.feed.store).sweep(lambda epoch: epoch < self.epoch)


def _live(life: _Life, s3: FaultyProxy, *, dies: bool) -> None:
    for step in life.steps():
        for left in reversed(range(_TRIES)):
            try:
                step()
                break
            except SinkUnavailable:
                if not left:
                    raise
                if dies and life.epoch == 7:
                    s3.watch()
                    life.die()


def _read(uri: str) -> tuple[list[str], list[str]]:
    """The texts of the messages, and what the judge says. A copied document may come twice: its chunk was read again."""
    feed = Feed(uri)
    reader, shown = feed.reader(), []
    round = reader.look()
    assert round is not None
    shown = [each.content for each in reader.read(round)]
    messages = [json.loads(_line(each)) for each in shown if isinstance(each, StoredMessage)]
    marks = [json.loads(feed.store.read(f"checkpoint/{name}") or b"")["pos"] for name in feed.store.names("checkpoint")]
    watermark = json.loads(round.now.message(IDENTITY.feed))
    texts = list(map(text_of, shown))
    once = [text for number, text in enumerate(texts) if not text.startswith("r7") or text not in texts[:number]]
    return once, judge([*messages, watermark], marks)


def _line(message: StoredMessage) -> str:
    return message.raw.decode() if message.raw.startswith(b"{") else to_json(message.raw)


@pytest.fixture
def places(bucket: str) -> Iterator[str]:
    base, _, query = bucket.partition("?")
    return (f"{base}/{number}?{query}" for number in count())


def _disturbed(
    s3: FaultyProxy, places: Iterator[str], cases: Callable[[int], Sequence[tuple[int, Fault, bool]]]
) -> None:
    undisturbed = next(places)
    s3.watch()
    _live(_Life(undisturbed), s3, dies=False)
    total = len(s3.requests)
    expected, verdict = _read(undisturbed)
    assert (len(expected), verdict) == (12, [])
    for number, fault, dies in cases(total):
        uri = next(places)

        def decide(request: Request, at: int = number, fault: Fault = fault, dies: bool = dies) -> Fault | None:
            if request.number == at:
                return fault
            return Fault.LOST_REQUEST if dies and request.number > at else None

        s3.watch(decide)
        _live(_Life(uri), s3, dies=dies)
        s3.watch()
        assert _read(uri) == (expected, []), f"{fault} at request {number} of {total}, {dies=}"


def test_a_spread_of_faults_and_deaths_changes_nothing(s3: FaultyProxy, places: Iterator[str]) -> None:
    _disturbed(
        s3, places, lambda total: list(product(range(total), _FAULTS, (False, True)))[:: _SPREAD * len(_FAULTS) + 1]
    )


@pytest.mark.soak
@pytest.mark.parametrize("fault", _FAULTS)
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies"])
def test_no_fault_at_any_request_changes_anything(
    s3: FaultyProxy, places: Iterator[str], fault: Fault, *, dies: bool
) -> None:
    _disturbed(s3, places, lambda total: [(number, fault, dies) for number in range(total)])


_READING = (*_FAULTS, Fault.CUT_ANSWER)


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_reader_that_is_disturbed_shows_nothing_wrong(s3: FaultyProxy, bucket: str, *, thorough: bool) -> None:
    """Each request meets one fault, the next request the next one; `thorough`: each meets all."""
    _live(_Life(bucket), s3, dies=False)
    feed = Feed(bucket, _store(bucket))
    s3.watch()
    expected, failed = feed.read(), set()
    requests = range(len(s3.requests))
    for number, fault in product(requests, _READING) if thorough else zip(requests, cycle(_READING), strict=False):
        s3.watch(lambda request, at=number, fault=fault: fault if request.number == at else None)  # type: ignore[misc]
        try:
            assert feed.read() == expected
        except SinkUnavailable:
            failed.add(fault)
    assert failed >= set(_FAULTS)
