"""`message_format`: the format that a sink's options ask for. Pure."""

from __future__ import annotations

from changefeed.config.sinks.message_options import MessageOptions
from sink.events.formats.message_format import MessageFormat
from sink.events.formats.sluice_format import SluiceFormat


def message_format(feed: str, source: str, options: MessageOptions) -> MessageFormat:  # noqa: ARG001 - for debezium, to come
    """`source`: the name that `debezium` gives the source, by which its topics begin."""
    return SluiceFormat(feed, options.encoding)
