"""Where two sinks of messages would both write."""

from __future__ import annotations

import pytest

from changefeed.config.shared_place import shared_files, shared_topic
from changefeed.config.sinks.file_options import DirectoryPlace
from changefeed.config.uri import ConnectionUri


@pytest.mark.parametrize(
    ("one", "other", "topic"),
    [
        ("kafka://b/shop", "kafka://b/crm", None),
        ("kafka://b/shop", "kafka://b/shop2", None),
        ("kafka://b/shop", "kafka://other/shop", "shop.feed"),
        ("kafka://b/shop.eu", "kafka://b/shop", "shop.eu.feed"),
        ("kafka://b/shop?format=debezium", "kafka://b/crm?topic=shop", "shop"),
        ("kafka://b/shop?topic=all", "kafka://b/crm?topic=all", "all"),
        ("kafka://b/shop?topic=s.{coll}", "kafka://b/crm?topic=c.{coll}", None),
        ("kafka://b/shop?topic={db}.{coll}", "kafka://b/crm", "crm.feed"),
        ("kafka://b/shop?topics=a.*:all", "kafka://b/crm?topics=b.*:all", "all"),
        ("kafka://b/shop", "s3://bucket/shop", None),
    ],
)
def test_topics(one: str, other: str, topic: str | None) -> None:
    uris = ConnectionUri.parse(one), ConnectionUri.parse(other)
    assert shared_topic(*uris) == shared_topic(*reversed(uris)) == topic


_CLAIMS = "kafka://b/shop?large=claim_check&claims=s3%3A%2F%2Fbucket%2Fshop%2Fclaims"


@pytest.mark.parametrize(
    ("one", "other", "inner"),
    [
        ("file:///srv/a", "file:///srv/b", None),
        ("file:///srv/a", "file:///srv/ab", None),
        ("file:///srv/a", "file:///srv/a/b?format=bson", "/srv/a/b"),
        ("s3://bucket/shop", "s3://bucket/shop/2026", "s3://bucket/shop/2026"),
        ("s3://bucket/shop", "s3://bucket", "s3://bucket/shop"),
        ("s3://bucket/shop", "s3://other/shop", None),
        ("s3://bucket/shop", "s3://bucket/shop?endpoint=https://minio:9000", None),
        ("s3://bucket/shop", "s3://bucket/shop?endpoint=https://s3.eu-central-1.amazonaws.com/", "s3://bucket/shop"),
        (
            "s3://bucket/shop?endpoint=http://MINIO:9000",
            "s3://bucket/shop?endpoint=http://minio:9000",
            "s3://bucket/shop",
        ),
        (_CLAIMS, "s3://bucket/shop", "s3://bucket/shop/claims"),
        (_CLAIMS, _CLAIMS.replace("b/shop?", "b/crm?"), "s3://bucket/shop/claims"),
        ("kafka://b/shop", "file:///srv/a", None),
    ],
)
def test_files(one: str, other: str, inner: str | None) -> None:
    uris = ConnectionUri.parse(one), ConnectionUri.parse(other)
    for found in (shared_files(*uris), shared_files(*reversed(uris))):
        assert (found.path if isinstance(found, DirectoryPlace) else found and str(found)) == inner
