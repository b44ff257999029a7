"""`SinkTraits`: what a kind of sink can do, as data. Pure.

mongodb     keeps documents: they can be read, compared, cleared, repaired; rows are seen when they are written
blackhole   keeps nothing
file, s3    keeps messages, each change and each DDL: nothing is folded, nothing can be cleared, and a commit makes rows seen
kafka       the same, but rows are seen when they are written
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from changefeed.config.sinks.file_options import BUCKET_OPTIONS, OPTIONS
from changefeed.config.sinks.kafka_options import KAFKA_OPTIONS
from changefeed.config.sinks.message_options import SinkOption


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    uri: str
    """As an example of its form."""
    about: str
    options: tuple[SinkOption, ...] = ()
    keeps_documents: bool = False
    """It is a MongoDB: it has tables, users, indexes and dead letters."""
    keeps_messages: bool = False
    """It is an event sink: it wants every change, and a table is never cleared."""


SINKS: Mapping[str, SinkTraits] = {
    "mongodb": SinkTraits(
        uri="mongodb://HOST:PORT,..",
        about="another MongoDB: documents, DDL and, if asked, users; options as the driver has them",
        keeps_documents=True,
    ),
    "mongodb+srv": SinkTraits(uri="mongodb+srv://HOST", about="the same, found through DNS", keeps_documents=True),
    "file": SinkTraits(
        uri="file:///DIRECTORY",
        about="each change, DDL and watermark as a message, in a directory that all nodes share",
        options=OPTIONS,
        keeps_messages=True,
    ),
    "s3": SinkTraits(
        uri="s3://BUCKET/PREFIX",
        about="the same, in a bucket of Amazon S3 or of a server with its protocol; keys as KEY:SECRET@BUCKET, or the node's own",
        options=(*OPTIONS, *BUCKET_OPTIONS),
        keeps_messages=True,
    ),
    "kafka": SinkTraits(
        uri="kafka://BROKER:PORT,../PREFIX",
        about="each change, DDL and watermark as a message in topics of Kafka; user and password as USER:PASSWORD@BROKER",
        options=KAFKA_OPTIONS,
        keeps_messages=True,
    ),
    "blackhole": SinkTraits(uri="blackhole://", about="nothing: to try out how fast a source can be read"),
}


def traits_of(scheme: str) -> SinkTraits:
    return SINKS[scheme]
