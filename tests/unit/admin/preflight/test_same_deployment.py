"""Which deployment an update names is decided by ids, then by the source's own history, and by host names only if nothing else is known."""

from __future__ import annotations

from typing import Any

import pytest

from admin.preflight.update_effect import Side, other_deployments
from changefeed.config.uri import ConnectionUri


def side(name: str = "source", before: str = "mongodb://a", now: str = "mongodb://b", **known: Any) -> Side:
    fields = {"known_id": "", "found_id": "", "other_known_id": "", **known}
    return Side(name=name, before=ConnectionUri(before), now=ConnectionUri(now), **fields)


@pytest.mark.parametrize(
    "same",
    [
        side(known_id="1", found_id="1"),
        side(known_id="1", found_id="1", proven=False),
        side(proven=True),
        side(now="mongodb://user:new@a"),
        side(now="mongodb://a", proven=False),
        side(known_id="1", now="mongodb://a/?tls=true"),
        side("sink", before="blackhole://", now="blackhole://"),
        side("sink", before="file:///a", now="file:///a?compression=none&commit_interval=10s"),
        side("sink", before="kafka://a/p?compression=lz4", now="kafka://a/p?compression=zstd"),
        side("sink", before="kafka://a,b/p", now="kafka://b,c/p", known_id="1", found_id="1"),
        side("sink", before="kafka://me:old@a/p", now="kafka://me:new@a/p"),
    ],
)
def test_the_same_deployment_is_accepted(same: Side) -> None:
    assert list(other_deployments("f", same)) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (side(now="mongodb://a", known_id="1", found_id="2"), "source: it is another deployment, 2, and was 1"),
        (side(known_id="1", found_id="2", other_known_id="2"), "source: it is the changefeed's sink"),
        (side("sink", found_id="2", other_known_id="2"), "sink: it is the changefeed's source"),
        (side(known_id="1", found_id="2", proven=True), "source: it is another deployment"),
        (side(proven=False, grant="grant it"), "its oplog has no entry at a position of the changefeed"),
        (side(grant="grant it"), "nothing proves that it is the deployment that it was: its id is unknown: grant it"),
        (side("sink", before="mongodb://a", now="blackhole://"), "sink: it is blackhole://, and was mongodb://a"),
        (side("sink", before="blackhole://", now="mongodb://a"), "which does not have the same rows"),
        (side("sink", before="file:///a", now="file:///b"), "which does not have the same rows"),
        (side("sink", before="kafka://a/p", now="kafka://a/q"), "which does not have the same rows"),
        (side("sink", before="kafka://a/p", now="kafka://b/p"), "which does not have the same rows"),
        (
            side("sink", before="kafka://a/p", now="kafka://b/p", known_id="1", found_id="2"),
            "which does not have the same rows",
        ),
    ],
)
def test_another_one_is_refused(other: Side, told: str) -> None:
    [problem] = other_deployments("f", other)
    assert told in problem
    assert "changefeed 'f'" in problem
