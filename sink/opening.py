"""`open_sink`: the sink that a configuration names. Only this module knows which kinds of sinks there are.

`target_client`: the MongoDB that is the sink, for what only a MongoDB can be asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import cast

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.uri import ConnectionUri
from changefeed.errors import InvariantError
from credentials.clients import Closable, Renewed
from credentials.secret_files import SecretFiles
from credentials.secrets import expanded
from sink.blackhole import BlackholeSink
from sink.messages.files.file_sink import FileSink
from sink.mongodb.connection import Client, connect
from sink.mongodb.mongo_sink import MongoSink, renewed_client
from sink.sink import Permit, Sink, SourceFacts


def _never() -> float:
    raise InvariantError("a sink that was opened to be looked at writes nothing")


def open_sink(
    configuration: Configuration,
    files: SecretFiles | None = None,
    *,
    source: SourceFacts | None = None,
    kept: Closable | None = None,
    life: str = "",
    permit: Permit = _never,
) -> Sink:
    """Reaches nothing yet. `files`: from which credentials may be read, if not those that this process was started with.

    `source`: for an owner. `kept`: what `kept_connection` of the same URI has.
    """
    uri = configuration.sink.reference
    match configuration.sink.scheme:
        case "mongodb" | "mongodb+srv":
            return MongoSink(configuration, source, cast("Client | None", kept), permit)
        case "file" | "s3":
            return FileSink(configuration.id, FileSinkOptions.parse(uri), files, life, permit)
        case "kafka":
            from sink.messages.kafka.kafka_sink import KafkaSink  # noqa: PLC0415 - it loads the client of Kafka, which takes time and memory

            return KafkaSink(configuration.id, KafkaSinkOptions.parse(uri), files, life, permit)
        case _:
            return BlackholeSink()


def cluster_id(configuration: Configuration) -> str:
    """Of the brokers that a sink's URI names, whatever they are called there. Empty for a sink without brokers."""
    if configuration.sink.scheme != "kafka":
        return ""
    from sink.messages.kafka.kafka_clients import kafka_clients  # noqa: PLC0415 - as above
    from sink.messages.kafka.topic_admin import TopicAdmin  # noqa: PLC0415 - as above

    options = KafkaSinkOptions.parse(configuration.sink.reference)
    return TopicAdmin(lambda: kafka_clients(options), options).check()


@contextmanager
def target_client(configuration: Configuration) -> Iterator[Client | None]:
    """None: the sink keeps no documents."""
    if instead_of_documents(configuration):
        yield None
        return
    with closing(connect(expanded(configuration.sink))) as client:
        yield client


def instead_of_documents(configuration: Configuration) -> str:
    """What the sink keeps instead of documents that can be read. Empty: it keeps documents."""
    if configuration.sink_traits.keeps_documents:
        return ""
    return (
        "messages and no documents: read them with `sluice read`"
        if configuration.sink_traits.keeps_messages
        else "nothing"
    )


def kept_connection(uri: ConnectionUri, files: SecretFiles | None) -> Renewed[Closable] | None:
    """What a process keeps open for all changefeeds with this sink. None: the sink itself keeps what it needs."""
    return renewed_client(uri, files) if uri.scheme in ("mongodb", "mongodb+srv") else None
