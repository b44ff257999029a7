"""`sluice read`, `sluice consume`: show the messages of a changefeed in order, from its files or topics alone, or make a MongoDB equal to its source. They ask no node."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias

import typer

from changefeed.config.options import Mistake
from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName
from changefeed.errors import ConfigurationError
from changefeed.printable import counted
from cli.command import reported
from cli.groups import examples
from cli.output import print_line, print_note
from credentials.logging import LogFormat, set_up
from sink.messages.files.directory import open_store
from sluice_client.feed_directory import FeedDirectory
from sluice_client.feed_reader import NOTHING, FeedReader, StoredMessage, Watermark
from sluice_client.file_reader import Reader

_LOOK_AGAIN_SECONDS = 1.0
_SHOWN = 80

Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Go on with what is written later, until interrupted.")
]
Table: TypeAlias = Annotated[
    str, typer.Option(metavar="DB.COLL", help="Show only messages that name this table, and watermarks.")
]
After: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="WATERMARK", help='Go on after this watermark: the last line with "op": "w" of an earlier run.'
    ),
]
To: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="URI",
        help="Write into this MongoDB instead, which must not have the tables; begun before, it goes on where it ended.",
    ),
]
FromStart: TypeAlias = Annotated[
    bool, typer.Option("--from-start", help="With --to: begin again. The tables must be dropped there before.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the options ask for."""

    follow: bool
    table: str
    after: str
    to: str
    from_start: bool

    def check(self) -> None:
        if self.table and self.to:
            raise ConfigurationError(["--table: it selects what is shown; with --to all tables are written"])
        if self.after and self.to:
            raise ConfigurationError(["--after: with --to the target knows where an earlier run ended"])
        if self.from_start and not self.to:
            raise ConfigurationError(
                ["--from-start: without --to the messages are shown from the start, or --after a watermark"]
            )

    def mark(self, feed: str) -> Watermark:
        """After which messages are shown."""
        if not self.after:
            return NOTHING
        try:
            fields = json.loads(self.after)
            if (fields["op"], fields["feed"]) == ("w", feed):
                return Watermark.parse(self.after)
        except (ValueError, LookupError, TypeError, AttributeError):
            pass
        wanted = f'a watermark of {feed}, such as the last line with "op": "w" of an earlier run'
        raise ConfigurationError([f"--after: expected {wanted}; got {self.after[:_SHOWN]!r}"])


def carry_out(wish: Wish, reader: FeedReader, feed: str, life: str) -> None:
    if not wish.to:
        for _ in _looks(reader, follow=wish.follow):
            _show(reader, wish.table, feed)
        return
    from sink.messages.replica import MongoReplica  # noqa: PLC0415 - as above
    from sink.mongodb.connection import connect  # noqa: PLC0415 - it loads the driver, a fifth of the start of any other command

    with closing(MongoReplica(connect(wish.to), reader, feed, life)) as replica:
        if replica.begin(from_start=wish.from_start):
            print_note("going on where an earlier run ended; --from-start begins again")
        for _ in _looks(reader, follow=wish.follow):
            if replica.follow() or not wish.follow:
                print_line(_until(reader))


def _looks(reader: FeedReader, *, follow: bool) -> Iterator[None]:
    """Rounds up to the newest watermark, and, to `follow`, those behind it."""
    yield
    while reader.more or follow:
        if not reader.more:
            time.sleep(_LOOK_AGAIN_SECONDS)
        yield


def _show(reader: FeedReader, table: str, feed: str) -> None:
    round = reader.look()
    if round is None:
        return
    for shown in reader.read(round):
        message = shown.content
        if isinstance(message, StoredMessage) and (not table or table in message.names):
            print_line(message.line)
    print_line(round.now.message(feed).decode())


def _until(reader: FeedReader) -> str:
    if reader.mark == NOTHING:
        return "there is no watermark yet: nothing was written"
    behind = f"; {counted(len(reader.mark.behind), 'table')} behind" if reader.mark.behind else ""
    return f"written up to {reader.mark.at}{behind}"


@examples("sluice read file:///srv/orders --follow", "sluice read file:///srv/orders --to mongodb://localhost:27017")
def read(
    uri: Annotated[
        str, typer.Argument(help="The sink of the changefeed.", metavar="file:///DIRECTORY|s3://BUCKET/PREFIX")
    ],
    *,
    follow: Follow = False,
    table: Table = "",
    after: After = "",
    to: To = "",
    from_start: FromStart = False,
) -> None:
    """Show the messages of a changefeed from its files.

    In the order of the source. No node is needed.

    Everything up to the newest watermark is shown, each message once, and then the watermark itself, from which another run can go on. A
    missing or damaged file is an error.
    """
    with reported():
        wish = Wish(follow=follow, table=table, after=after, to=to, from_start=from_start)
        wish.check()
        set_up(LogFormat.CONSOLE, logging.WARNING)
        directory = _directory(uri)
        identity = directory.identity()
        carry_out(wish, Reader(directory, wish.mark(identity.feed)), identity.feed, identity.life)


def _directory(uri: str) -> FeedDirectory:
    try:
        return FeedDirectory(open_store(FileSinkOptions.parse(uri).place))
    except Mistake as mistake:
        raise ConfigurationError([f"uri: {mistake}"]) from None


@examples(
    "sluice consume kafka://b1:9092/shop --follow",
    "sluice consume kafka://b1:9092/shop --follow --to mongodb://localhost:27017",
)
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
    """Show the messages of a changefeed from its Kafka topics.

    In the order of the source; the topics must have the format sluice. No node is needed.

    Everything up to the newest watermark is shown, each message once, and then the watermark itself. Repeats are dropped, DDL is in its
    place. No consumer group is used, and nothing is saved in the brokers. Messages that a topic has removed are an error.

    With --to, the target is equal to the source at each watermark that is reached. Killed at any moment, it goes on where it ended. What was
    read and not shown yet is kept in a temporary file (SQLITE_TMPDIR says where).
    """
    from sink.messages.kafka.kafka_clients import kafka_clients  # noqa: PLC0415 - it loads the client of Kafka, which no other command needs
    from sink.messages.kafka.kafka_reader import KafkaReader  # noqa: PLC0415 - as above

    with reported():
        wish = Wish(follow=follow, table=table, after=after, to=to, from_start=from_start)
        wish.check()
        set_up(LogFormat.CONSOLE, logging.WARNING)  # clients of Kafka tell each try to connect
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
    print_note(f"read {counted(messages, 'message')}")


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
