"""`sluice read`: shows what a changefeed has written into files, in order, or makes a MongoDB equal to it. It asks no node."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer

from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.config.wording import Mistake
from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.output import print_line
from sink.events.extended_json import to_json
from sink.files.reading.feed_directory import FeedDirectory, StoredMessage
from sink.files.reading.reader import Reader, Shown
from sink.files.reading.replica import MongoReplica
from sink.mongodb.connection import connect

_LOOK_AGAIN_SECONDS = 1.0


def read(
    uri: Annotated[str, typer.Argument(help="The sink of the changefeed.", metavar="file:///DIRECTORY")],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is written later, until interrupted.")
    ] = False,
    table: Annotated[str, typer.Option(metavar="DB.COLL", help="Show only messages that name this table.")] = "",
    to: Annotated[
        str, typer.Option(metavar="URI", help="Write into this MongoDB instead, which must not have the tables.")
    ] = "",
) -> None:
    """Show the messages of a changefeed in the order of its source, from its files alone.

    Everything up to the newest watermark is shown, each message once. A missing or damaged file is an error.
    """
    with reported():
        if table and to:
            raise ConfigurationError(["--table: it selects what is shown; with --to all tables are written"])
        reader = Reader(_directory(uri))
        if to:
            with closing(MongoReplica(connect(to))) as replica:
                for messages in _rounds(reader, follow=follow):
                    replica.follow(messages)
                print_line(_until(reader))
            return
        for messages in _rounds(reader, follow=follow):
            _show(messages, table)


def _directory(uri: str) -> FeedDirectory:
    try:
        directory = FeedDirectory(FileSinkOptions.parse(uri).directory)
    except Mistake as mistake:
        raise ConfigurationError([f"uri: {mistake}"]) from None
    directory.feed()
    return directory


def _rounds(reader: Reader, *, follow: bool) -> Iterator[Iterator[Shown]]:
    yield reader.read()
    while follow:
        time.sleep(_LOOK_AGAIN_SECONDS)
        yield reader.read()


def _show(messages: Iterator[Shown], table: str) -> None:
    for message in messages:
        if isinstance(message, StoredMessage) and (not table or table in message.names):
            print_line(message.raw.decode() if message.raw.startswith(b"{") else to_json(message.raw))


def _until(reader: Reader) -> str:
    if reader.mark is None:
        return "there is no watermark yet: nothing was written"
    behind = f"; {len(reader.mark.behind)} tables are behind" if reader.mark.behind else ""
    return f"written up to {reader.mark.at}{behind}"
