"""What waits for a user is said beside the state."""

from __future__ import annotations

import pytest

from admin.services.changefeed_messages import attention
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells


@pytest.mark.parametrize(
    ("troubles", "rejected", "said"),
    [
        ([], 0, ""),
        (["stopped"], 0, "1 table stopped"),
        (
            ["stopped", "refused", "lost", "lost"],
            1_200,
            "2 tables lost, 1 table with a refused DDL, 1 table stopped, 1,200 rows rejected",
        ),
    ],
)
def test_tables_and_rows_that_wait_are_counted(troubles: list[str], rejected: int, said: str) -> None:
    assert attention([pb.StoppedTable(trouble=trouble) for trouble in troubles], rejected) == said


def test_a_state_that_is_normal_says_what_waits() -> None:
    feed = pb.Changefeed(state="CHANGEFEED_STATE_NORMAL", obeyed=True, attention="1 table stopped")
    assert cells.state(feed).plain == "normal, 1 table stopped"


def test_what_is_not_known_now_is_told_with_its_time() -> None:
    feed = pb.Changefeed()
    assert cells.as_of([feed]) == ""
    feed.as_of.FromJsonString("2026-11-21T01:32:54Z")
    assert cells.as_of([pb.Changefeed(), feed]).startswith("as of 2026-11-21 01:32:54 UTC, ")
