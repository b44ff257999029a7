"""Which of the two watches is used for which source."""

from __future__ import annotations

import pytest

from changefeed.errors import SourceUnsupported
from source.connection import Deployment
from source.opening import DdlOrigin, chosen_origin

AUTO, STREAM, OPLOG = DdlOrigin.AUTO, DdlOrigin.CHANGE_STREAM, DdlOrigin.OPLOG


@pytest.mark.parametrize(
    ("wish", "version", "sharded", "expected"),
    [
        (AUTO, (4, 2), False, OPLOG),
        (AUTO, (5, 0), False, OPLOG),
        (AUTO, (6, 0), False, STREAM),
        (AUTO, (8, 2), True, STREAM),
        (OPLOG, (8, 0), False, OPLOG),
        (STREAM, (6, 0), False, STREAM),
    ],
)
def test_the_change_stream_is_used_where_it_shows_everything(
    wish: DdlOrigin, version: tuple[int, int], expected: DdlOrigin, *, sharded: bool
) -> None:
    assert chosen_origin(wish, Deployment(version=version, sharded=sharded)) is expected


@pytest.mark.parametrize(
    ("wish", "version", "sharded", "remedy"),
    [
        (AUTO, (5, 0), True, "6.0 is the oldest"),
        (OPLOG, (8, 0), True, "watch its change stream"),
        (STREAM, (4, 4), False, "watch its oplog"),
    ],
)
def test_what_cannot_be_complete_is_refused_with_a_remedy(
    wish: DdlOrigin, version: tuple[int, int], remedy: str, *, sharded: bool
) -> None:
    with pytest.raises(SourceUnsupported, match=remedy):
        chosen_origin(wish, Deployment(version=version, sharded=sharded))
