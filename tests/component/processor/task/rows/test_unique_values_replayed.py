"""Values of a unique index that rotate between rows are replayed in windows that end before the position the target has reached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from changefeed.position import Window
from devstack.mongodb.server import Client
from tests.component.processor.windowing import Windowing

Rows = dict[str, dict[str, Any]]
Updates = Sequence[tuple[str, dict[str, Any]]]


@pytest.fixture
def windowing(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> Iterator[Callable[[Rows], Windowing]]:
    def made(rows: Rows) -> Windowing:
        for client, name in ((source_client, database), (target_client, f"{database}_to")):
            client[name]["orders"].create_index("u", unique=True)
            client[name]["orders"].insert_many([{"_id": key, **row} for key, row in rows.items()])
        return Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)

    yield made
    target_client.drop_database(f"{database}_to")


ROUND: tuple[Rows, Updates] = (
    {"q": {"u": "a"}, "r": {"u": "b"}, "s": {"u": "c"}},
    [("r", {"u": "k"}), ("s", {"u": "v"}), ("s", {"u": "w"}), ("r", {"u": "v"}), ("s", {"u": "z"}), ("q", {"u": "w"})],
)
OTHER_FIELD: tuple[Rows, Updates] = (
    {"q": {"u": "a"}, "r": {"u": "b"}, "s": {"u": "c"}},
    [
        ("r", {"x": 0}),
        ("s", {"y": 0}),
        ("r", {"u": "v", "x": 1}),
        ("s", {"y": 1}),
        ("r", {"u": "w"}),
        ("q", {"u": "v"}),
    ],
)
EXCHANGE: tuple[Rows, Updates] = (
    {"w": {"u": "b"}, "q": {"u": "c"}, "y": {"u": "d"}, "z": {"u": "e"}},
    [(key, {"u": value}) for key, value in zip("wqwwqwqyz", "xba12ba12", strict=True)],
)


@pytest.mark.parametrize("case", [ROUND, OTHER_FIELD, EXCHANGE], ids=["round", "other field", "exchange"])
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_values_that_go_round_arrive_though_windows_end_among_them(
    windowing: Callable[[Rows], Windowing], case: tuple[Rows, Updates], wide: bool
) -> None:
    before, updates = case
    made = windowing(before)
    orders = made.source[made.database]["orders"]
    for key, fields in updates:
        orders.update_one({"_id": key}, {"$set": fields})
    end = made.now()
    made.run(Window(made.start, end), replay_until=made.start)
    places = [made.start, *made.events(Window(made.start, end))[1:], end]
    start, width = 0, 2
    while start < len(places) - 1:
        window = Window(places[start], places[min(start + width, len(places) - 1)])
        outcome = made.run_wide([window], replay_until=end) if wide else made.run(window, replay_until=end)
        start, width = (start, 2 * width) if outcome.rows.unsettled else (start + width, 2)
    assert made.differences() == []
