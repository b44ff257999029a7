"""`sluice consume` shows what is in topics, and makes a MongoDB of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from changefeed.table import TableName
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from sink.messages.replica_place import COLLECTION
from tests.component.node.server_process import run
from tests.component.sink.kafka.feed import KafkaFeed
from tests.component.sink.vocabulary import A, insert, moment


@pytest.fixture
def feed(kafka: KafkaBroker) -> KafkaFeed:
    feed = KafkaFeed(kafka)
    feed.claim()
    feed.window([insert(A, 101, 1), insert(A, 102, 2)])
    _mark(feed, 110)
    return feed


def _mark(feed: KafkaFeed, at: int) -> None:
    feed.sink.marks().mark(moment(at), {}, [TableName("shop", "a")])


def _consumed(feed: KafkaFeed, *arguments: str) -> list[str]:
    answer = run(["consume", str(feed.options), *arguments], {})
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


@pytest.mark.costly("a command of its own for each part")
def test_what_is_consumed_in_parts_is_what_is_consumed_at_once(feed: KafkaFeed) -> None:
    first = _consumed(feed)
    assert [json.loads(line)["op"] for line in first] == ["b", "i", "i", "w"]
    feed.window([insert(A, 102, 2), insert(A, 111, 3)])
    _mark(feed, 120)
    second = _consumed(feed, "--after", first[-1])
    assert [json.loads(line)["op"] for line in second] == ["i", "w"]
    assert _consumed(feed, "--table", "shop.a") == first[:-1] + second


def test_a_target_is_made_and_followed(
    feed: KafkaFeed, target_uri: str, target_client: Client, emptied: Callable[[], None]
) -> None:
    assert "written up to 110.1" in _consumed(feed, "--to", target_uri)[-1]
    feed.window([insert(A, 111, 3)])
    _mark(feed, 120)
    assert "written up to 120.1" in _consumed(feed, "--to", target_uri)[-1]
    assert sorted(row["_id"] for row in target_client["shop"]["a"].find()) == [1, 2, 3]
    assert target_client[COLLECTION[0]][COLLECTION[1]].count_documents({}) == 1


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("file:///srv/orders", "use sluice read"),
        ("kafka://127.0.0.1:1/shop?format=debezium", "only messages in the format sluice"),
        ("kafka://127.0.0.1:1/shop?formt=sluice", "format"),
    ],
)
def test_a_uri_that_cannot_be_consumed_is_refused(uri: str, said: str) -> None:
    answer = run(["consume", uri], {})
    assert (answer.returncode, answer.stdout) == (2, "")
    assert said in answer.stderr


def test_topics_that_nobody_has_written_are_said(kafka: KafkaBroker) -> None:
    answer = run(["consume", f"kafka://{kafka.bootstrap}/nobody"], {})
    assert answer.returncode != 0
    assert "no changefeed has written here yet" in answer.stderr
