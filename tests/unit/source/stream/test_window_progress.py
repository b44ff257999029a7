from __future__ import annotations

from collections.abc import Sequence

import bson
import pytest
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from source.stream.change_event import MalformedEvent, StreamReply, scan
from source.stream.completeness import WindowProgress

LARGE = "x" * 2**20


def token(seconds: int, event: int | None = None) -> str:
    """A high water mark, or event number `event` at that time."""
    head = f"82{seconds:08X}{1:08X}2B04"
    return f"{head}2C0100296E{event:04X}04" if event is not None else f"{head}29296E04"


def at(seconds: int, event: int | None = None) -> Position:
    return Position(ClusterTime(seconds, 1), token(seconds, event) if event is not None else "")


def event(seconds: int, number: int, **more: object) -> bytes:
    return bson.encode(
        {
            "_id": {"_data": token(seconds, number)},
            "operationType": "insert",
            "clusterTime": Timestamp(seconds, 1),
            "fullDocument": {"_id": number},
            "ns": {"db": "shop", "coll": "orders"},
            "documentKey": {"_id": number},
            **more,
        }
    )


def reply(*events: bytes, resume_token: str) -> StreamReply:
    return StreamReply(events=list(events), resume_token=resume_token, operation_ts=ClusterTime(999, 1), cursor_id=1)


def numbers(events: Sequence[bytes]) -> list[int]:
    return [bson.decode(event)["documentKey"]["_id"] for event in events]


def test_a_window_in_the_middle_of_a_transaction_keeps_only_its_own_events() -> None:
    progress = WindowProgress(Window(at(100, 2), at(100, 4)))
    batch = progress.take(reply(*(event(100, number) for number in range(1, 6)), resume_token=token(100, 5)))
    assert numbers(batch.events) == [2, 3]
    assert progress.complete
    assert batch.reached == at(100, 4)


def test_an_empty_batch_proves_nothing() -> None:
    progress = WindowProgress(Window(at(100), at(103)))
    assert progress.take(reply(resume_token=token(100))).reached == at(100)
    assert progress.take(reply(resume_token=token(102))).reached == at(102)
    assert not progress.complete
    assert progress.take(reply(resume_token=token(103))).reached == at(103)
    assert progress.complete


@pytest.mark.parametrize(
    ("events", "stands_at", "silent_until"),
    [
        ([], token(500), at(500)),
        ([event(102, 1)], token(500), at(500)),
        ([event(102, 1), event(300, 1)], token(500), at(300, 1)),
        ([event(102, 1), event(104, 1)], token(500), None),
        ([], token(104), None),
    ],
)
def test_a_long_silent_stretch_after_the_window_is_reported(
    events: list[bytes], stands_at: str, silent_until: Position | None
) -> None:
    progress = WindowProgress(Window(at(100), at(103)))
    assert progress.take(reply(*events, resume_token=stands_at)).silent_until == silent_until


def test_the_last_event_before_the_end_does_not_prove_the_end() -> None:
    progress = WindowProgress(Window(at(100), at(101)))
    progress.take(reply(event(100, 1), resume_token=token(100, 1)))
    assert not progress.complete


def test_a_high_water_mark_at_the_time_of_a_ddl_does_not_prove_what_stands_before_the_ddl() -> None:
    progress = WindowProgress(Window(at(100), at(103, 7)))
    progress.take(reply(resume_token=token(103)))
    assert not progress.complete
    progress.take(reply(event(103, 7), resume_token=token(103, 7)))
    assert progress.complete


def test_a_stream_opened_again_yields_nothing_twice() -> None:
    progress = WindowProgress(Window(at(100), at(103)))
    progress.take(reply(event(100, 1), event(101, 1), event(101, 2), resume_token=token(101, 2)))
    assert progress.start_ts == ClusterTime(101, 1)
    progress.reopened()
    batch = progress.take(reply(event(101, 1), event(101, 2), event(101, 3), resume_token=token(101, 3)))
    assert numbers(batch.events) == [3]


def test_an_empty_window_is_complete_before_anything_is_read() -> None:
    assert WindowProgress(Window(at(100), at(100))).complete


def fragment(number: int, of: int = 3, **fields: object) -> bytes:
    return bson.encode(
        {"_id": {"_data": token(101, 4) + f"{number:02X}"}, "splitEvent": {"fragment": number, "of": of}, **fields}
    )


FRAGMENTS = [
    fragment(1, operationType="replace", clusterTime=Timestamp(101, 1), documentKey={"_id": 4}),
    fragment(2, fullDocument={"_id": 4, "a": LARGE}),
    fragment(3, fullDocumentBeforeChange={"_id": 4, "a": LARGE}, ns={"db": "shop", "coll": "orders"}),
]


def test_fragments_in_several_replies_become_one_event() -> None:
    progress = WindowProgress(Window(at(100), at(102)))
    first = progress.take(reply(event(100, 1), FRAGMENTS[0], resume_token=token(101, 4) + "01"))
    second = progress.take(reply(FRAGMENTS[1], resume_token=token(101, 4) + "02"))
    third = progress.take(reply(FRAGMENTS[2], event(101, 9), resume_token=token(102)))
    assert [numbers(batch.events) for batch in (first, second, third)] == [[1], [], [4, 9]]
    header = scan(third.events[0])
    assert header.before_end - header.before_at > len(LARGE)
    assert progress.complete


def test_a_stream_that_breaks_between_fragments_shows_the_whole_event_again() -> None:
    progress = WindowProgress(Window(at(100), at(102)))
    progress.take(reply(event(100, 1), FRAGMENTS[0], FRAGMENTS[1], resume_token=token(101, 4) + "02"))
    assert progress.start_ts == ClusterTime(100, 1)
    progress.reopened()
    batch = progress.take(reply(event(100, 1), *FRAGMENTS, resume_token=token(102)))
    assert numbers(batch.events) == [4]


def test_fragments_that_are_never_finished_are_an_error() -> None:
    progress = WindowProgress(Window(at(100), at(102)))
    progress.take(reply(FRAGMENTS[0], resume_token=token(101, 4) + "01"))
    with pytest.raises(MalformedEvent, match="followed by another event"):
        progress.take(reply(event(101, 9), resume_token=token(101, 9)))


STREAM = [(seconds, number) for seconds in range(100, 106) for number in range(1, 4)]
PLACES = [at(seconds, number) for seconds in range(100, 107) for number in (None, 1, 2, 3)]


@given(
    ends=st.tuples(st.sampled_from(PLACES), st.sampled_from(PLACES)).map(sorted),
    sizes=st.lists(st.integers(0, 5), max_size=40),
    breaks=st.sets(st.integers(0, 40)),
)
def test_each_event_of_the_window_comes_once_and_in_order_wherever_the_stream_breaks(
    ends: list[Position], sizes: list[int], breaks: set[int]
) -> None:
    window = Window(*ends)
    progress = WindowProgress(window)
    left, seen = [place for place in STREAM if ClusterTime(place[0], 1) >= progress.start_ts], []
    for step, size in enumerate([*sizes, *[5] * 10]):
        if progress.complete:
            break
        if step in breaks:
            progress.reopened()
            left = [place for place in STREAM if ClusterTime(place[0], 1) >= progress.start_ts]
        sent, left = left[:size], left[size:]
        mark = token(*sent[-1]) if sent else token(left[0][0] if left else 107)
        seen += [
            scan(raw).position for raw in progress.take(reply(*(event(*p) for p in sent), resume_token=mark)).events
        ]
        assert window.start <= progress.reached <= window.end
    assert seen == [at(*place) for place in STREAM if at(*place) in window][: len(seen)]
    if progress.complete:
        assert seen == [at(*place) for place in STREAM if at(*place) in window]
