"""`sluice consume`: shows what a changefeed has written into topics of Kafka, in order, or makes a MongoDB equal to its source. It asks no node."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Annotated

import typer

from changefeed.config.options import Mistake
from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName
from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.message_reading import After, Follow, FromStart, Table, To, Wish, carry_out
from cli.output import print_note
from sink.files.stores.opening import open_store


def consume(
    uri: Annotated[
        str,
        typer.Argument(
            help="The sink of the changefeed, with its options: those for the connection, topic and claims matter.",
            metavar="kafka://HOST:PORT,../PREFIX",
        ),
    ],
    *,
    follow: Follow = False,
    table: Table = "",
    after: After = "",
    to: To = "",
    from_start: FromStart = False,
) -> None:
    """Show the messages of a changefeed in the order of its source, from its topics alone (format sluice).

    Everything up to the newest watermark is shown, each message once, and then the watermark itself. Repeats are dropped, DDL is in its
    place. No consumer group is used, and nothing is saved in the brokers. Messages that a topic has removed are an error.

    With --to, the target is equal to the source at each watermark that is reached. Killed at any moment, it goes on where it ended. What was
    read and not shown yet is kept in a temporary file (SQLITE_TMPDIR says where).
    """
    from sink.kafka.brokers.clients import kafka_clients  # noqa: PLC0415 - it loads the client of Kafka, which no other command needs
    from sink.kafka.reading.kafka_reader import KafkaReader  # noqa: PLC0415 - as above

    with reported():
        wish = Wish(follow=follow, table=table, after=after, to=to, from_start=from_start)
        wish.check()
        options = _options(uri)
        claims = open_store(options.claims) if options.claims is not None else None
        reader = KafkaReader(
            partial(kafka_clients, options), options, claims=claims, whole=bool(to), progress=_tell_progress
        )
        with closing(reader):
            feed, life = reader.identity()
            reader.mark = wish.mark(feed)
            carry_out(wish, reader, feed, life)


def _tell_progress(messages: int) -> None:
    print_note(f"read {messages:,} messages")


def _options(uri: str) -> KafkaSinkOptions:
    try:
        if not uri.startswith("kafka://"):
            raise Mistake("found another scheme; write kafka://HOST:PORT/PREFIX, or use sluice read for files")
        options = KafkaSinkOptions.parse(uri)
    except Mistake as mistake:
        raise ConfigurationError([f"uri: {mistake}"]) from None
    if options.messages.format is not FormatName.SLUICE:
        raise ConfigurationError(
            [
                f"uri: found format={options.messages.format}; only messages in the format sluice say what a consumer has to know"
            ]
        )
    return options
