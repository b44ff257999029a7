"""Places of DDLs inside one cluster time."""

from __future__ import annotations

import pytest

from changefeed.capture import Capture, names_place
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from source.oplog.place import position
from source.sharded.tables.place import numbered, place_of

AT = ClusterTime(100, 1)


def test_ddls_come_before_the_rows_of_their_time_and_in_the_order_of_shards_and_operations() -> None:
    first, second = place_of(AT, "sa", 0), place_of(AT, "sa", 1)
    places = [Position(AT), first, numbered(first, 1), numbered(first, 2), second, place_of(AT, "sb", 0)]
    places += [position(AT, 0), position(AT, 1), Position(AT.next())]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    assert [Position.parse(str(each)) for each in places] == places


@pytest.mark.parametrize(
    ("capture", "known"),
    [
        (Capture.OPLOG, ["", "00000001"]),
        (Capture.SHARD_OPLOGS, ["", "00000001", "-7361.00000000"]),
        (Capture.CHANGE_STREAM, ["", "8264AB"]),
    ],
)
def test_a_capture_knows_its_own_places(capture: Capture, known: list[str]) -> None:
    assert [token for token in ("", "00000001", "-7361.00000000", "8264AB") if names_place(capture, token)] == known
