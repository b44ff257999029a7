"""Tables with unique indexes whose changes bring images, in wide windows, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import ReplaceOne, UpdateOne
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from changefeed.capture import Capture
from changefeed.position import Position, Window
from devstack.mongodb.server import Client
from processor.lanes.windows import WindowLimits
from processor.spark.pipeline import Pipeline, SharedContext
from processor.spark.runner import SparkRunner
from processor.spark.settings import SparkSettings
from processor.spark.spark_watch import SparkWatch
from tests.component.processor.windowing import Windowing
from tests.until import until

pytestmark = pytest.mark.since("6.0")

_IMAGES: dict[str, Any] = {"changeStreamPreAndPostImages": {"enabled": True}}


@pytest.fixture
def windowing(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> Iterator[Callable[[], Windowing]]:
    for client, name in ((source_client, database), (target_client, f"{database}_to")):
        client[name].create_collection("orders", **_IMAGES)
        client[name]["orders"].create_index("u", unique=True, sparse=True)
        client[name]["orders"].create_index([("tags.name", 1)], unique=True, sparse=True)
        client[name].create_collection("plain")
    yield lambda: Windowing(
        etcd_endpoint, source_uri, target_uri, source_client, target_client, database, Capture.CHANGE_STREAM
    )
    target_client.drop_database(f"{database}_to")


def _hand_values_on(client: Client, database: str, rounds: int, numbers: range = range(80)) -> None:
    """In each pair of rows, a unique value moves to the other row and back, by each kind of change."""
    first = numbers.start
    orders = client[database]["orders"]
    orders.insert_many([{"_id": n, "u": n, "tags": [{"name": f"t{n}"}]} for n in numbers])
    for round_ in range(rounds):
        changes: list[Any] = []
        for n in numbers[::2]:
            one, other = (n, n + 1) if round_ % 2 == 0 else (n + 1, n)
            changes += [
                UpdateOne({"_id": one}, {"$unset": {"u": ""}, "$set": {"x": round_}}),
                UpdateOne({"_id": other}, {"$set": {"u": float(n), "tags.0.name": f"r{other}"}}),
                ReplaceOne({"_id": one}, {"u": n + 1, "tags": [{"name": f"t{other}"}]}),
            ]
        orders.bulk_write(changes)
    [gone] = orders.find({"_id": first})
    orders.delete_one({"_id": first})
    orders.insert_one({"_id": f"new {first}", "u": gone["u"]})


def _cuts(windowing: Windowing, end: Position, count: int) -> list[Window]:
    events = windowing.events(Window(windowing.start, end))
    inner = [events[len(events) * number // count] for number in range(1, count)]
    return [Window(one, other) for one, other in pairwise([windowing.start, *inner, end])]


def test_values_handed_on_between_rows_arrive_through_several_buckets(
    windowing: Callable[[], Windowing], database: str
) -> None:
    made = windowing()
    made.source[database]["plain"].insert_one({"_id": 1})
    _hand_values_on(made.source, database, rounds=3)
    made.source[database]["plain"].update_one({"_id": 1}, {"$set": {"x": 1}})
    cuts = _cuts(made, made.now(), 3)
    made.run_wide(cuts, replay_until=made.start, buckets=4)
    assert made.differences() == []
    assert len(made.used) == 4


class _WatchedSpark(SparkRunner):
    """Records whether the last job had a stage between its two usual stages."""

    divided = False

    def run_shuffled(self, *args: Any) -> list[Any]:
        self.divided = args[-1] is not None
        return super().run_shuffled(*args)


def test_spark_divides_a_wide_window_and_none_that_is_replayed(
    windowing: Callable[[], Windowing], database: str
) -> None:
    made = windowing()
    _hand_values_on(made.source, database, rounds=1, numbers=range(10))

    def spread() -> bool:
        made.source[database]["orders"].update_one({"_id": 1}, {"$inc": {"n": 1}})
        return made.now().ts.seconds >= made.start.ts.seconds + 3

    until(spread, "changes in three seconds")
    _hand_values_on(made.source, database, rounds=1, numbers=range(100, 110))
    spark = _WatchedSpark(SparkSettings(master="local[4]"))
    with spark:
        pipeline = Pipeline(spark, WindowLimits(slice_seconds=1), SparkWatch(spark.probe))
        context = SharedContext(made.shared.context)
        window = Window(made.start, made.now())
        for replay_until, divided in ((window.start, True), (window.end, False)):
            outcome = pipeline.run(context, replace(made.spec(window, replay_until), density=1 << 30))
            assert outcome.error is None
            assert made.differences() == []
            assert spark.divided is divided


def test_changes_without_images_keep_the_order_of_the_whole_table(
    windowing: Callable[[], Windowing], database: str
) -> None:
    made = windowing()
    made.source[database].command("collMod", "orders", changeStreamPreAndPostImages={"enabled": False})
    _hand_values_on(made.source, database, rounds=2)
    made.run_wide(_cuts(made, made.now(), 2), replay_until=made.start, buckets=4)
    made.target[f"{database}_to"].command("collMod", "orders", changeStreamPreAndPostImages={"enabled": False})
    assert made.differences() == []
    assert len(made.used) == 1


_ROW = st.fixed_dictionaries(
    {}, optional={"u": st.integers(1, 4), "tags": st.lists(st.sampled_from([{"name": 1}, {"name": 2}]), max_size=1)}
)
_CHANGES = st.lists(st.tuples(st.sampled_from("iiruuuxd"), st.integers(0, 5), _ROW), min_size=10, max_size=40)


def _live_through(client: Client, database: str, changes: list[tuple[str, int, dict[str, Any]]]) -> None:
    orders = client[database]["orders"]
    for number, (kind, id_, row) in enumerate(changes):
        with suppress(DuplicateKeyError):
            match kind:
                case "i":
                    orders.insert_one({"_id": id_, **row})
                case "r":
                    orders.replace_one({"_id": id_}, {**row, "n": number})
                case "u":
                    orders.update_one({"_id": id_}, {"$set": {**row, "n": number}})
                case "x":
                    orders.update_one({"_id": id_}, {"$unset": {"u": "", "tags": ""}})
                case _:
                    orders.delete_one({"_id": id_})


@settings(max_examples=25, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(changes=_CHANGES, draw=st.data())
def test_a_window_that_ended_in_any_of_its_buckets_is_replayed_to_equality(
    windowing: Callable[[], Windowing], changes: list[tuple[str, int, dict[str, Any]]], draw: st.DataObject
) -> None:
    made = windowing()
    for database in (made.source[made.database], made.target[f"{made.database}_to"]):
        database["orders"].delete_many({})
    made.start = made.now()
    _live_through(made.source, made.database, changes)
    end = made.now()
    events = made.events(Window(made.start, end))
    if len(events) < 4:
        return
    middle = draw.draw(st.sampled_from(events[1:]))
    behind = [event for event in events if middle < event]
    reached = draw.draw(st.sampled_from([*behind, end]))
    made.run_wide(_between(made.start, middle), replay_until=made.start)
    made.run_wide(_between(middle, reached), replay_until=made.start, only=draw.draw(st.sets(st.integers(0, 1))))
    made.run_wide(_between(middle, end), replay_until=reached)
    assert _values(made.source[made.database]) == _values(made.target[f"{made.database}_to"])


def _values(database: Database[dict[str, Any]]) -> list[bytes]:
    """Byte by byte, but for the order of a row's fields: a replay may move those that were removed and set again (docs/reference/verify.md)."""
    return [bson.encode(dict(sorted(row.items()))) for row in database["orders"].find(sort=[("_id", 1)])]


def _between(start: Position, end: Position) -> list[Window]:
    """Divides the range into two slices."""
    cut = Position(end.ts)
    return [Window(start, cut), Window(cut, end)] if start < cut < end else [Window(start, end)]
