"""`sluice read` shows messages that a program can take up again where it stopped."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path

import bson
import pytest

from tests.component.node.server_process import run
from tests.component.sink.files.feed import Feed
from tests.component.sink.vocabulary import A, B, insert, moment


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    feed = Feed(f"file://{tmp_path}/feed")
    feed.window(100, 110, [insert(A, 101, 1), insert(B, 102, 2, "b")], A, B)
    feed.window(110, 120, [insert(A, 111, 3)], A)
    feed.marks.mark(moment(120), {B: moment(110)})
    return feed


def _read(feed: Feed, *arguments: str) -> list[str]:
    answer = run(["read", f"file://{feed.path}", *arguments], {})
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.splitlines()


def _refused(feed: Feed, *arguments: str) -> str:
    answer = run(["read", f"file://{feed.path}", *arguments], {})
    assert answer.returncode == 2
    assert not answer.stdout
    return answer.stderr


def test_what_is_read_in_parts_is_what_is_read_at_once(feed: Feed) -> None:
    """A table that was behind the watermark is taken up where it was."""
    first = _read(feed)
    assert _read(feed, "--after", first[-1]) == []
    feed.window(110, 130, [insert(A, 121, 4), insert(B, 112, 5, "b")], A, B)
    feed.marks.mark(moment(130))
    second = _read(feed, "--after", first[-1])
    whole = _read(feed)
    assert [json.loads(each[-1])["op"] for each in (first, second, whole)] == ["w"] * 3
    assert sorted(first[:-1] + second) == sorted(whole)
    assert [json.loads(line)["key"]["_id"] for line in second[:-1]] == [{"$numberInt": "5"}, {"$numberInt": "4"}]


def test_one_table_is_shown_with_the_watermarks(feed: Feed) -> None:
    shown = [json.loads(line) for line in _read(feed, "--table", "shop.b")]
    assert [(message["op"], message.get("ns")) for message in shown] == [("i", "shop.b"), ("w", None)]


def test_text_that_is_no_utf8_ends_no_reader(tmp_path: Path) -> None:
    feed = Feed(f"file://{tmp_path}/feed?format=bson")
    broken = bson.encode({"_id": 1, "a": "~"}).replace(b"~", b"\xff")
    feed.window(100, 110, [insert(A, 101, 1)._replace(document=broken), insert(B, 102, 2, "b")], A, B)
    feed.marks.mark(moment(110))
    [shown] = [each for each in map(json.loads, _read(feed)) if each["op"] == "i" and each["ns"] == "shop.a"]
    assert b64decode(shown["after"]["$bson"]) == broken
    assert len(_read(feed, "--table", "shop.b")) == 2


@pytest.mark.parametrize(
    "watermark", ["yesterday", "[]", '{"op": "w"}', '{"v": 1, "feed": "other", "op": "w", "pos": "0", "tables": "all"}']
)
def test_what_is_no_watermark_of_this_changefeed_is_refused(feed: Feed, watermark: str) -> None:
    assert "expected a watermark of orders" in _refused(feed, "--after", watermark)


def test_what_does_not_go_together_is_refused(feed: Feed) -> None:
    to = "--to", "mongodb://nowhere.example"
    assert "the target knows where an earlier run ended" in _refused(feed, "--after", _read(feed)[-1], *to)
    assert "with --to all tables are written" in _refused(feed, "--table", "shop.a", *to)
    assert "shown from the start, or --after" in _refused(feed, "--from-start")


def test_a_replica_of_a_changefeed_that_has_not_begun_says_so(tmp_path: Path, target_uri: str) -> None:
    begun = Feed(f"file://{tmp_path}/begun")
    for _ in range(2):
        assert _read(begun, "--to", target_uri) == ["there is no watermark yet: nothing was written"]
