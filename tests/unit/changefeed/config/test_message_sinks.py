"""What a configuration with a sink of messages may say."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError

_PLAIN = {"id": "f", "source": "mongodb://s", "sink": "file:///srv/f?format=bson"}

_COMPACTED = "kafka://b/shop?format=debezium&topic.cleanup.policy=compact"


def test_topics_may_be_compacted_if_each_message_has_the_whole_document() -> None:
    assert Configuration.parse(_PLAIN | {"sink": _COMPACTED, "images": "required"}).images == "required"


def test_a_plain_one_is_accepted() -> None:
    configuration = Configuration.parse(_PLAIN | {"start": "initial", "routes": [{"from": "a.*", "to": "b.*"}]})
    assert configuration.sink_traits.keeps_messages
    assert str(configuration.sink) == "file:///srv/f?format=bson"
    assert Configuration.parse(configuration.model_dump(mode="json", exclude_none=True)) == configuration


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ({"users": True}, "users"),
        ({"dead_letter": "sluice.rejected"}, "dead_letter"),
        ({"on_rejected": "stop_changefeed"}, "on_rejected"),
        ({"on_divergence": "fail"}, "on_divergence"),
        ({"on_occupied": "drop"}, "on_occupied"),
        ({"ddl": {"ttl": "copied"}}, "ddl.ttl"),
        ({"pipeline": {"pre_images": ["a.b"]}}, "pipeline.pre_images"),
        ({"filter": {"events": [{"tables": ["a.b"], "ignore": ["drop"]}]}}, "filter.events"),
        ({"sink": "file:///srv/f?format=avro"}, "sink"),
        ({"source": "file:///srv/f"}, "source"),
        ({"sink": _COMPACTED}, "sink"),
        ({"sink": _COMPACTED, "images": "available"}, "sink"),
    ],
)
def test_what_means_nothing_is_refused(option: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Configuration.parse(_PLAIN | option)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [named]


@pytest.mark.parametrize("option", [{"capture": "change_stream"}, {"images": "available"}, {"images": "required"}])
def test_changes_may_be_read_from_change_streams_and_with_images(option: dict[str, Any]) -> None:
    configuration = Configuration.parse(_PLAIN | option)
    assert Configuration.parse(configuration.model_dump(mode="json", exclude_none=True)) == configuration


def test_rows_may_be_ignored() -> None:
    rule = {"tables": ["a.b"], "ignore": ["delete"]}
    assert Configuration.parse(_PLAIN | {"filter": {"events": [rule]}}).filter.events
