"""A range of the oplog is whole, or an error says that it is not, whatever entries the server still has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import bson
import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.errors import HistoryLost, SourceUnavailable
from changefeed.table import TableName
from source.oplog import find
from source.raw_find import Found


def at(increment: int) -> ClusterTime:
    return ClusterTime(100, increment)


@dataclass
class Server:
    """Its oplog, and the member that answers."""

    times: list[int] = field(default_factory=lambda: list(range(1, 10)))
    member: str = "one"
    elects: bool = False
    """Another member answers what is asked after a range."""
    asked: list[Mapping[str, Any]] = field(default_factory=list)

    def entries(self, arguments: Mapping[str, Any]) -> list[bytes]:
        self.asked.append(arguments)
        bounds = arguments["filter"]["ts"]
        if isinstance(bounds, dict):
            first, end = map(ClusterTime.from_bson, (bounds["$gte"], bounds["$lt"]))
        else:
            first = ClusterTime.from_bson(bounds)
            end = first.next()
        found = [bson.encode({"op": "i", "ts": at(time).to_bson()}) for time in self.times if first <= at(time) < end]
        self.member = "two" if self.elects else self.member
        return found

    def oldest(self) -> dict[str, Any]:
        return {"cursor": {"firstBatch": [{"ts": at(time).to_bson()} for time in self.times[:1]]}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """The module asks a driver's client, whose replies are raw: they are replaced where it asks."""
    server = Server()

    class Replies:
        def __init__(self, _: object, table: TableName, arguments: Mapping[str, Any], **limits: int) -> None:
            self._arguments = arguments

        def __enter__(self) -> Self:
            return self

        def __iter__(self) -> Iterator[Found]:
            yield Found(server.entries(self._arguments), 0, None)

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None: ...

    monkeypatch.setattr(find, "RawFind", Replies)
    monkeypatch.setattr(find, "member_read", lambda _: server.member)
    monkeypatch.setattr(find, "read_command", lambda *_: server.oldest())
    return server


def read(start: int, end: int) -> list[int]:
    replies = find.entries(None, at(start), at(end), {})  # type: ignore[arg-type]  # see `server`
    times = (bson.decode(entry)["ts"] for reply in replies for entry in reply)
    return [ClusterTime.from_bson(ts).increment for ts in times]


def test_a_range_has_the_entries_from_its_start_to_before_its_end(server: Server) -> None:
    assert read(3, 6) == [3, 4, 5]


def test_a_member_has_the_whole_range_when_it_answers(server: Server) -> None:
    read(3, 6)
    [asked] = server.asked
    assert asked["readConcern"] == {"level": "majority", "afterClusterTime": at(5).to_bson()}


@pytest.mark.parametrize(
    "left", [[], [7, 8], [5, 7], [4, 5, 7]], ids=["nothing", "what follows", "its last", "all but one"]
)
def test_a_range_of_which_something_was_removed_is_lost(server: Server, left: list[int]) -> None:
    """Also if nothing of it is left: then the reply is as of a range without an entry."""
    server.times = left
    with pytest.raises(HistoryLost, match=r"but history from 100\.3 on is needed"):
        read(3, 6)


@pytest.mark.parametrize(("left", "found"), [([1, 8], []), ([3, 4, 8], [3, 4]), ([2, 8], [])])
def test_a_range_with_few_entries_is_whole_if_the_oplog_begins_before_it(
    server: Server, left: list[int], found: list[int]
) -> None:
    server.times = left
    assert read(3, 6) == found


def test_the_oplog_of_another_member_says_nothing_of_what_was_read(server: Server) -> None:
    server.times, server.elects = [1, 8], True
    with pytest.raises(SourceUnavailable, match="another member is read"):
        read(3, 6)


@pytest.mark.parametrize("projection", [None, {"ts": 1}])
def test_a_part_of_a_transaction_that_was_removed_is_lost(server: Server, projection: dict[str, object] | None) -> None:
    entry = find.entry_at(None, at(4), projection)  # type: ignore[arg-type]  # see `server`
    assert bson.decode(entry)["ts"] == at(4).to_bson()
    server.times = [7]
    with pytest.raises(HistoryLost, match="a part of a transaction"):
        find.entry_at(None, at(4), projection)  # type: ignore[arg-type]  # see `server`


def test_a_server_of_4_2_is_asked_to_go_to_the_time(server: Server) -> None:
    read(3, 6)
    find.entry_at(None, at(4), None)  # type: ignore[arg-type]  # see `server`
    assert [asked["oplogReplay"] for asked in server.asked] == [True, True]
