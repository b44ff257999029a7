"""The real consumers take the messages of the formats that are named for them: classes of Debezium, and of MongoDB's connector, which writes to a real server."""

from __future__ import annotations

from typing import Any

import pytest

from devstack.kafka.consumers import DEBEZIUM, MONGODB, ConsumerClasses
from devstack.mongodb.server import Client
from tests.golden_messages import COLOURED, FIRST, LAST, SHORTER, recorded

pytestmark = pytest.mark.sinks

_CDC = "com.mongodb.kafka.connect.sink.cdc"
_CHANGE_STREAMS = f"{_CDC}.mongodb.ChangeStreamHandler"
_ENVELOPES = f"{_CDC}.debezium.mongodb.ChangeStreamHandler"


def _applied(
    classes: ConsumerClasses, name: str, uri: str, client: Client, database: str, **settings: str
) -> tuple[str, list[dict[str, Any]]]:
    lines = recorded(name)
    said = classes.applied(
        lines, connection_uri=uri, database=database, collection="c", topics=str(lines[0]["topic"]), **settings
    )
    return said, list(client[database]["c"].find().sort("_id"))


@pytest.mark.parametrize("classes", MONGODB, ids=str)
@pytest.mark.parametrize(
    ("name", "schemas", "handler"),
    [
        ("mongodb", "none", _CHANGE_STREAMS),
        ("mongodb-images", "none", _CHANGE_STREAMS),
        ("debezium-images", "false", _ENVELOPES),
        ("debezium-extended-images", "none", _ENVELOPES),
        ("debezium-schemas-images", "true", _ENVELOPES),
    ],
)
def test_the_sink_of_mongodb_makes_a_collection_what_the_source_is(
    classes: ConsumerClasses,
    name: str,
    schemas: str,
    handler: str,
    target_uri: str,
    target_client: Client,
    database: str,
) -> None:
    said, found = _applied(
        classes,
        name,
        target_uri,
        target_client,
        database,
        schemas=schemas,
        change_data_capture_handler=handler,
    )
    assert said == f"applied {len(recorded(name))}"
    whole = LAST if name != "mongodb" else [{**LAST[0], "list": FIRST["list"]}, *LAST[1:]]
    assert found == whole


@pytest.mark.parametrize("classes", MONGODB, ids=str)
def test_the_sink_of_mongodb_refuses_envelopes_without_images(
    classes: ConsumerClasses, target_uri: str, target_client: Client, database: str
) -> None:
    """So `create` warns."""
    said, _ = _applied(
        classes,
        "debezium",
        target_uri,
        target_client,
        database,
        schemas="false",
        change_data_capture_handler=_ENVELOPES,
    )
    assert said.startswith("error")


@pytest.mark.parametrize("classes", DEBEZIUM, ids=str)
def test_debeziums_transformation_gives_documents_with_images(classes: ConsumerClasses) -> None:
    found = [each["value"] for each in classes.flattened(recorded("debezium-schemas-images"), schemas="true")[:-2]]
    assert found == [LAST[1], FIRST, COLOURED, SHORTER, {"_id": 1004, "n": 5}, LAST[2], {"_id": 3}]


@pytest.mark.parametrize("classes", DEBEZIUM, ids=str)
def test_debeziums_transformation_gives_what_changed_without_images(classes: ConsumerClasses) -> None:
    found = [each["value"] for each in classes.flattened(recorded("debezium-schemas"), schemas="true")[:-2]]
    assert found[2:4] == [{"_id": 1, "color": "weiß"}, {"_id": 1, "s.y": 2}]


@pytest.mark.parametrize("classes", DEBEZIUM, ids=str)
def test_debeziums_transformation_passes_messages_without_schemas_on_unchanged(classes: ConsumerClasses) -> None:
    first, *_ = classes.flattened(recorded("debezium-images")[:1], schemas="false")
    assert first["value"]["op"] == "r"
