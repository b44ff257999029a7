"""`sluice read`: shows what a changefeed has written into files of a directory or a bucket, in order, or makes a MongoDB equal to it. It asks no node."""

from __future__ import annotations

from typing import Annotated

import typer

from changefeed.config.options import Mistake
from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.message_reading import After, Follow, FromStart, Table, To, Wish, carry_out
from sink.files.reading.feed_directory import FeedDirectory
from sink.files.reading.reader import Reader
from sink.files.stores.opening import open_store


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
    """Show the messages of a changefeed in the order of its source, from its files alone.

    Everything up to the newest watermark is shown, each message once, and then the watermark itself, from which another run can go on. A
    missing or damaged file is an error.
    """
    with reported():
        wish = Wish(follow=follow, table=table, after=after, to=to, from_start=from_start)
        wish.check()
        directory = _directory(uri)
        identity = directory.identity()
        carry_out(wish, Reader(directory, wish.mark(identity.feed)), identity.feed, identity.life)


def _directory(uri: str) -> FeedDirectory:
    try:
        return FeedDirectory(open_store(FileSinkOptions.parse(uri).place))
    except Mistake as mistake:
        raise ConfigurationError([f"uri: {mistake}"]) from None
