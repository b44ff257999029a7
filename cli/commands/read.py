"""`sluice read`: shows what a changefeed has written into files of a directory or a bucket, in order, or makes a MongoDB equal to it. It asks no node."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated

import typer

from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.config.wording import Mistake
from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.output import print_line, print_note
from credentials.logging import LogFormat, set_up
from sink.events.extended_json import to_json
from sink.files.reading.feed_directory import FeedDirectory, StoredMessage, Watermark
from sink.files.reading.reader import NOTHING, Reader
from sink.files.reading.replica import MongoReplica
from sink.files.stores.opening import open_store
from sink.mongodb.connection import connect

_LOOK_AGAIN_SECONDS = 1.0
_SHOWN = 80


def read(
    uri: Annotated[
        str, typer.Argument(help="The sink of the changefeed.", metavar="file:///DIRECTORY|s3://BUCKET/PREFIX")
    ],
    *,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is written later, until interrupted.")
    ] = False,
    table: Annotated[
        str, typer.Option(metavar="DB.COLL", help="Show only messages that name this table, and watermarks.")
    ] = "",
    after: Annotated[
        str,
        typer.Option(
            metavar="WATERMARK", help='Go on after this watermark: the last line with "op": "w" of an earlier run.'
        ),
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            metavar="URI",
            help="Write into this MongoDB instead, which must not have the tables; begun before, it goes on where it ended.",
        ),
    ] = "",
    from_start: Annotated[
        bool, typer.Option("--from-start", help="With --to: begin again. The tables must be dropped there before.")
    ] = False,
) -> None:
    """Show the messages of a changefeed in the order of its source, from its files alone.

    Everything up to the newest watermark is shown, each message once, and then the watermark itself, from which another run can go on. A
    missing or damaged file is an error.
    """
    with reported():
        if table and to:
            raise ConfigurationError(["--table: it selects what is shown; with --to all tables are written"])
        if after and to:
            raise ConfigurationError(["--after: with --to the target knows where an earlier run ended"])
        if from_start and not to:
            raise ConfigurationError(
                ["--from-start: without --to the messages are shown from the start, or --after a watermark"]
            )
        directory = _directory(uri)
        identity = directory.identity()
        reader = Reader(directory, _watermark(after, identity.feed) if after else None)
        if not to:
            for _ in _looks(follow=follow):
                _show(reader, table, identity.feed)
            return
        set_up(LogFormat.CONSOLE, logging.WARNING)
        with closing(MongoReplica(connect(to), reader, identity)) as replica:
            if replica.begin(from_start=from_start):
                print_note("going on where an earlier run ended; --from-start begins again")
            for _ in _looks(follow=follow):
                if replica.follow() or not follow:
                    print_line(_until(reader))


def _directory(uri: str) -> FeedDirectory:
    try:
        return FeedDirectory(open_store(FileSinkOptions.parse(uri).place))
    except Mistake as mistake:
        raise ConfigurationError([f"uri: {mistake}"]) from None


def _looks(*, follow: bool) -> Iterator[None]:
    yield
    while follow:
        time.sleep(_LOOK_AGAIN_SECONDS)
        yield


def _watermark(line: str, feed: str) -> Watermark:
    try:
        fields = json.loads(line)
        if (fields["op"], fields["feed"]) == ("w", feed):
            return Watermark.parse(line)
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise ConfigurationError(
        [
            f'--after: expected a watermark of {feed}, such as the last line with "op": "w" of an earlier run; got {line[:_SHOWN]!r}'
        ]
    )


def _show(reader: Reader, table: str, feed: str) -> None:
    round = reader.look()
    if round is None:
        return
    for shown in reader.read(round):
        message = shown.content
        if isinstance(message, StoredMessage) and (not table or table in message.names):
            print_line(message.raw.decode() if message.raw.startswith(b"{") else to_json(message.raw))
    print_line(round.now.message(feed).decode())


def _until(reader: Reader) -> str:
    if reader.mark == NOTHING:
        return "there is no watermark yet: nothing was written"
    behind = len(reader.mark.behind)
    told = "" if not behind else "; 1 table is behind" if behind == 1 else f"; {behind} tables are behind"
    return f"written up to {reader.mark.at}{told}"
