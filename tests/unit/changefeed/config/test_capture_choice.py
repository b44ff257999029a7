"""The choice of a capture, and its reason."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.capture import Capture
from changefeed.config.capture_choice import (
    MAJORITY_READS_DISABLED,
    ROUTER,
    Obstacle,
    choose,
    image_obstacles,
    not_allowed,
)
from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError

_BOTH = frozenset({Capture.OPLOG, Capture.CHANGE_STREAM})


def configuration(**fields: Any) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", **fields})


def images_of(**fields: Any) -> list[str]:
    return [obstacle.reason for obstacle in image_obstacles(configuration(**fields))]


def test_auto_is_the_oplog_without_obstacles() -> None:
    choice = choose(Capture.AUTO, [])
    assert (choice.capture, choice.reason) == (Capture.OPLOG, "the source is a replica set whose oplog can be read")


@pytest.mark.parametrize(
    ("obstacle", "said"),
    [
        (ROUTER, "mongos shows no oplog"),
        (not_allowed("the source answers Unauthorized"), "read on database local or the role clusterMonitor"),
        (MAJORITY_READS_DISABLED, "enableMajorityReadConcern"),
    ],
)
def test_auto_is_the_change_stream_where_the_oplog_cannot_be_read_and_says_why(obstacle: Obstacle, said: str) -> None:
    choice = choose(Capture.AUTO, [obstacle])
    assert choice.capture is Capture.CHANGE_STREAM
    assert said in choice.reason
    with pytest.raises(
        ConfigurationError, match=f"^capture: oplog is not possible, since .*{said}.*; .*write change_stream"
    ):
        choose(Capture.OPLOG, [obstacle])


def test_all_obstacles_are_reported_at_once() -> None:
    assert choose(Capture.AUTO, [Obstacle("a", "x"), Obstacle("b", "y")]).reason == "a; b"
    with pytest.raises(ConfigurationError) as refused:
        choose(Capture.OPLOG, [Obstacle("a", "x"), Obstacle("b", "y")])
    assert refused.value.problems == (
        "capture: oplog is not possible, since a; x",
        "capture: oplog is not possible, since b; y",
    )


def test_a_capture_that_is_asked_for_and_possible_is_taken() -> None:
    assert choose(Capture.OPLOG, []).capture is Capture.OPLOG
    assert choose(Capture.CHANGE_STREAM, [ROUTER]).capture is Capture.CHANGE_STREAM


@pytest.mark.parametrize("condition", ["update_old", "update_new", "delete"])
def test_a_condition_on_a_document_before_or_after_a_change_needs_change_streams(condition: str) -> None:
    rule = {"tables": ["shop.audit"], "ignore_where": {condition: {"level": "debug"}}}
    [said] = images_of(filter={"events": [rule]})
    assert (
        said == "filter.events asks for documents before or after changes of shop.audit, which only change streams show"
    )


@pytest.mark.parametrize(
    "where",
    [
        {"insert": {"level": "debug"}},
        {"replace": {"level": "debug"}},
        {"delete": {"_id": 1}},
        {"update_new": {"_id": 1}},
    ],
)
def test_a_condition_on_what_an_entry_holds_needs_none(where: dict[str, Any]) -> None:
    assert images_of(filter={"events": [{"tables": ["shop.audit"], "ignore_where": where}]}) == []


def test_messages_with_images_need_change_streams() -> None:
    assert images_of(sink="file:///srv/f") == []
    [said] = images_of(sink="file:///srv/f", images="available")
    assert said.startswith("images: available asks for documents before and after changes")


def test_pre_images_need_change_streams() -> None:
    [said] = images_of(pipeline={"pre_images": ["shop.orders"]})
    assert said.startswith("pipeline.pre_images asks for documents")
