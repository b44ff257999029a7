"""`shared_place`: where two sinks of messages would both write, from their URIs alone. Pure.

    kafka://b/shop                  kafka://b/shop.eu                   topics: shop.eu.feed may be one of the table eu.feed
    kafka://b/shop                  kafka://b/crm                       none
    kafka://b/shop?topic=all        kafka://b/crm?topic=all             the topic all
    s3://b/shop                     s3://b/shop/2026                    files: one is within the other
    kafka://b/shop?claims=s3..      kafka://b/crm?claims=s3..           files, too

Which Kafka it is its URI does not say: hosts have several names. Who asks has to look.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import PurePosixPath

from changefeed.config.overlap import common_texts
from changefeed.config.sinks.file_options import BucketPlace, DirectoryPlace, FileSinkOptions, StorePlace
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.uri import ConnectionUri

_AMAZON = ".amazonaws.com"


def shared_topic(one: ConnectionUri, other: ConnectionUri) -> str | None:
    """A topic that both would write, if they were in one Kafka."""
    if not one.scheme == other.scheme == "kafka":
        return None
    for mine, theirs in product(*(list(_topics(KafkaSinkOptions.parse(uri.reference))) for uri in (one, other))):
        for name in common_texts(mine, theirs):
            return name
    return None


def _topics(options: KafkaSinkOptions) -> Iterator[str]:
    """As patterns. Whichever tables the source has now, it may get others."""
    yield from options.own_topics
    for rule in options.rules:
        yield rule.topic.replace("{prefix}", options.prefix).replace("{db}", "*").replace("{coll}", "*")


def shared_files(one: ConnectionUri, other: ConnectionUri) -> StorePlace | None:
    """The inner one of two places."""
    mine, theirs = _store(one), _store(other)
    if mine is None or theirs is None:
        return None
    (first, path), (second, inner) = sorted((_located(mine), _located(theirs)), key=lambda each: len(each[1].parts))
    if first != second or not inner.is_relative_to(path):
        return None
    return max(mine, theirs, key=lambda place: len(_located(place)[1].parts))


def _store(uri: ConnectionUri) -> StorePlace | None:
    match uri.scheme:
        case "file" | "s3":
            return FileSinkOptions.parse(uri.reference).place
        case "kafka":
            return KafkaSinkOptions.parse(uri.reference).claims
        case _:
            return None


def _located(place: StorePlace) -> tuple[object, PurePosixPath]:
    """In which store, and where there."""
    match place:
        case DirectoryPlace(path):
            return "a file system", PurePosixPath(path)
        case BucketPlace(bucket=bucket, prefix=prefix, endpoint=endpoint):
            amazon = not endpoint or endpoint.rstrip("/").endswith(_AMAZON)
            return (bucket, "" if amazon else endpoint.rstrip("/").lower()), PurePosixPath("/", prefix)
