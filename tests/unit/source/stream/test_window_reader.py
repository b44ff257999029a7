from __future__ import annotations

import pytest

from changefeed.errors import SourceUnsupported
from source.stream.window_reader import ReadOptions, ServerVersion

SPLIT: dict[str, object] = {"$changeStreamSplitLargeEvent": {}}


@pytest.mark.parametrize("version", [(4, 2, 25), (4, 4, 29), (5, 0, 31)])
def test_an_old_server_gets_no_options_that_it_does_not_know(version: tuple[int, ...]) -> None:
    server = ServerVersion(version=version)
    assert server.stream_options(ReadOptions()) == {"fullDocument": "default"}
    assert server.last_stages() == []


@pytest.mark.parametrize("version", [(6, 0, 0), (7, 0, 2), (8, 0, 0), (8, 2, 1)])
def test_a_new_server_shows_collection_uuids(version: tuple[int, ...]) -> None:
    assert ServerVersion(version=version).stream_options(ReadOptions())["showExpandedEvents"] is True


@pytest.mark.parametrize(
    ("version", "splits"),
    [((6, 0, 8), False), ((6, 0, 9), True), ((6, 3, 2), False), ((7, 0, 0), True), ((8, 0, 4), True)],
)
def test_large_events_are_split_where_the_server_can(version: tuple[int, ...], splits: bool) -> None:
    assert (SPLIT in ServerVersion(version=version).last_stages()) is splits


@pytest.mark.parametrize("options", [ReadOptions(before=True), ReadOptions(after=True)])
def test_images_are_refused_where_the_server_keeps_none(options: ReadOptions) -> None:
    with pytest.raises(SourceUnsupported, match=r"need MongoDB 6\.0, and the source is MongoDB 5\.0\.31"):
        ServerVersion(version=(5, 0, 31)).stream_options(options)
