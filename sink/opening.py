"""`event_sink`: the event sink that a configuration names. What is not an event sink has none."""

from __future__ import annotations

from changefeed.config.configuration import Configuration
from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from credentials.secret_files import SecretFiles
from sink.event_sink import EventSink
from sink.files.file_event_sink import FileEventSink


def event_sink(configuration: Configuration, files: SecretFiles | None = None) -> EventSink | None:
    """`files`: from which credentials may be read, if not those that this process was started with."""
    if not configuration.sink_can.keeps_messages:
        return None
    uri = configuration.sink.reference
    if configuration.sink.scheme != "kafka":
        return FileEventSink(configuration.id, FileSinkOptions.parse(uri), files)
    from sink.kafka.kafka_event_sink import KafkaEventSink  # noqa: PLC0415 - it loads the client of Kafka, which takes time and memory

    return KafkaEventSink(configuration.id, KafkaSinkOptions.parse(uri), files)
