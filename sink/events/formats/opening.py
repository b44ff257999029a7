"""`message_format`: the format that a sink's options ask for. Pure."""

from __future__ import annotations

from changefeed.config.sinks.message_options import FormatName, MessageOptions
from sink.events.formats.debezium_format import DebeziumFormat
from sink.events.formats.message_format import MessageFormat
from sink.events.formats.mongodb_format import MongoFormat
from sink.events.formats.sluice_format import SluiceFormat


def message_format(feed: str, source: str, options: MessageOptions) -> MessageFormat:
    """`source`: the name that `debezium` gives the source, by which its topics begin."""
    match options.format:
        case FormatName.DEBEZIUM:
            return DebeziumFormat(feed, source, options)
        case FormatName.MONGODB:
            return MongoFormat(feed, options.encoding)
        case FormatName.SLUICE:
            return SluiceFormat(feed, options.encoding)
