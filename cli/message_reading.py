"""What `sluice read` and `sluice consume` share: they show the messages of a changefeed in order, or make a MongoDB equal to its source."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from changefeed.errors import ConfigurationError
from cli.output import print_line, print_note
from credentials.logging import LogFormat, set_up
from sink.reading.shown import FeedReader
from sink.reading.stored_message import NOTHING, StoredMessage, Watermark

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
    from sink.mongodb.connection import connect  # noqa: PLC0415 - it loads the driver, a fifth of the start of any other command
    from sink.reading.replica import MongoReplica  # noqa: PLC0415 - as above

    set_up(LogFormat.CONSOLE, logging.WARNING)
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
            print_line(message.json)
    print_line(round.now.message(feed).decode())


def _until(reader: FeedReader) -> str:
    if reader.mark == NOTHING:
        return "there is no watermark yet: nothing was written"
    behind = len(reader.mark.behind)
    told = "" if not behind else "; 1 table is behind" if behind == 1 else f"; {behind} tables are behind"
    return f"written up to {reader.mark.at}{told}"
