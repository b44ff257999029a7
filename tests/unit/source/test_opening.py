"""Where DDL is read, for each capture and each kind of source."""

from __future__ import annotations

import pytest

from changefeed.capture import Capture
from changefeed.errors import SourceUnsupported
from source.connection import Deployment
from source.one_deployment import reads_oplog

OPLOG, STREAM = Capture.OPLOG, Capture.CHANGE_STREAM


@pytest.mark.parametrize(
    ("capture", "version", "sharded", "expected"),
    [
        (OPLOG, (4, 2), False, True),
        (OPLOG, (8, 0), False, True),
        (STREAM, (5, 0), False, True),
        (STREAM, (6, 0), False, False),
        (STREAM, (8, 2), True, False),
    ],
)
def test_the_oplog_is_read_also_where_change_streams_do_not_show_all_ddl(
    capture: Capture, version: tuple[int, int], *, sharded: bool, expected: bool
) -> None:
    assert reads_oplog(capture, Deployment(version=version, sharded=sharded)) is expected


@pytest.mark.parametrize(
    ("capture", "version", "remedy"),
    [
        (STREAM, (5, 0), "the oldest supported version of a sharded cluster is 6.0"),
        (OPLOG, (8, 0), "write capture: change_stream"),
    ],
)
def test_what_cannot_be_complete_is_refused_with_a_remedy(
    capture: Capture, version: tuple[int, int], remedy: str
) -> None:
    with pytest.raises(SourceUnsupported, match=remedy):
        reads_oplog(capture, Deployment(version=version, sharded=True))
