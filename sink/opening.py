"""`open_sink`: the sink that a configuration names. Only this module knows which kinds of sinks there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.uri import ConnectionUri
from credentials.clients import Closable, Renewed
from credentials.secret_files import SecretFiles
from sink.blackhole import BlackholeSink
from sink.messages.files.file_sink import FileSink
from sink.mongodb.mongo_sink import MongoSink, renewed_client
from sink.sink import Sink, SourceFacts

if TYPE_CHECKING:
    from sink.mongodb.connection import Client


def open_sink(
    configuration: Configuration,
    files: SecretFiles | None = None,
    *,
    source: SourceFacts | None = None,
    kept: Closable | None = None,
) -> Sink:
    """Reaches nothing yet. `files`: from which credentials may be read, if not those that this process was started with.

    `source`: for an owner. `kept`: what `kept_connection` of the same URI has.
    """
    uri = configuration.sink.reference
    match configuration.sink.scheme:
        case "mongodb" | "mongodb+srv":
            return MongoSink(configuration, source, cast("Client | None", kept))
        case "file" | "s3":
            return FileSink(configuration.id, FileSinkOptions.parse(uri), files)
        case "kafka":
            from sink.messages.kafka.kafka_sink import KafkaSink  # noqa: PLC0415 - it loads the client of Kafka, which takes time and memory

            return KafkaSink(configuration.id, KafkaSinkOptions.parse(uri), files)
        case _:
            return BlackholeSink()


def kept_connection(uri: ConnectionUri, files: SecretFiles | None) -> Renewed[Closable] | None:
    """What a process keeps open for all changefeeds with this sink. None: the sink itself keeps what it needs."""
    return renewed_client(uri, files) if uri.scheme in ("mongodb", "mongodb+srv") else None
