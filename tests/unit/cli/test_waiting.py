from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.waiting import wait_for, waits_for

OWNED = [pb.Node(name="n1"), pb.Node(name="n2", owner=True)]
REMOVED = pb.CHANGEFEED_STATE_REMOVED


@pytest.mark.parametrize(
    ("feed", "nodes", "words"),
    [
        (pb.Changefeed(id="a", still_on=["n1"]), [pb.Node(name="n1")], "has no owner: check `sluice node list`"),
        (None, OWNED, "the owner has not begun with it"),
        (
            pb.Changefeed(id="a", state=REMOVED, still_on=["n1", "n2"]),
            OWNED,
            "tasks of it still run on n1, n2: one that",
        ),
        (
            pb.Changefeed(id="a", state=REMOVED, error=pb.ErrorReport(code="sink_unavailable", message="away")),
            OWNED,
            "sink_unavailable: away",
        ),
        (pb.Changefeed(id="a", state=REMOVED), OWNED, "it is removed: check `sluice changefeed query a`"),
    ],
)
def test_a_request_that_takes_long_says_what_it_waits_for(
    feed: pb.Changefeed | None, nodes: list[pb.Node], words: str
) -> None:
    assert words in waits_for(feed, nodes)


@pytest.mark.parametrize(("attention", "told"), [("", "caught-up"), ("1 table stopped", "caught-up, 1 table stopped")])
def test_who_waits_for_the_rows_is_told_which_tables_wait_for_a_user(attention: str, told: str) -> None:
    feed = pb.Changefeed(id="a", checkpoint="1795224774.9", attention=attention)
    feed.lag.FromSeconds(1)
    served: Any = SimpleNamespace(
        changefeeds=SimpleNamespace(WatchChangefeed=None), stream=lambda *_, **__: iter([feed])
    )
    assert wait_for(served, "a", "caught-up", 1.0) == told
