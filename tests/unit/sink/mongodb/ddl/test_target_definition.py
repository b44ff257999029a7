from __future__ import annotations

import math

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Ttl
from changefeed.documents.document import Document
from changefeed.position import Position
from changefeed.table import TableId, TableName, TableSchema
from sink.mongodb.ddl.target_definition import NEVER_SECONDS, index_expiry, modified_expiry, table_expiry

TTL_INDEX = {"v": 2, "key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 3600}


def schema(options: dict[str, object], *indexes: dict[str, object]) -> TableSchema:
    return TableSchema(
        id=TableId("aa"),
        name=TableName("shop", "sessions"),
        options=Document.of(options),
        indexes=tuple(map(Document.of, indexes)),
        valid_from=Position(ClusterTime(1, 1)),
    )


def test_a_deferred_index_never_expires_anything() -> None:
    assert index_expiry(TTL_INDEX, Ttl.DEFERRED)["expireAfterSeconds"] == 2147483647


def test_a_copied_index_expires_as_at_the_source() -> None:
    assert index_expiry(TTL_INDEX, Ttl.COPIED) == TTL_INDEX


def test_an_index_without_expiry_is_not_given_one() -> None:
    plain = {"v": 2, "key": {"a": 1}, "name": "a_1"}
    assert index_expiry(plain, Ttl.DEFERRED) == plain


def test_a_value_only_old_servers_took_becomes_the_largest() -> None:
    assert index_expiry(TTL_INDEX | {"expireAfterSeconds": math.nan}, Ttl.COPIED)["expireAfterSeconds"] == NEVER_SECONDS
    assert index_expiry(TTL_INDEX | {"expireAfterSeconds": 2**40}, Ttl.COPIED)["expireAfterSeconds"] == NEVER_SECONDS


def test_a_clustered_collection_is_created_without_expiry() -> None:
    options = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}, "expireAfterSeconds": 60}
    assert table_expiry(options, Ttl.DEFERRED) == {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}
    assert table_expiry(options, Ttl.COPIED) == options


def test_a_changed_expiry_stays_off() -> None:
    assert modified_expiry({"expireAfterSeconds": 60}, Ttl.DEFERRED) == {"expireAfterSeconds": "off"}
    assert modified_expiry({"index": {"name": "at_1", "expireAfterSeconds": 60}}, Ttl.DEFERRED) == {
        "index": {"name": "at_1", "expireAfterSeconds": NEVER_SECONDS}
    }
