"""Choosing how to watch a source's DDL, and opening that watch."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

from changefeed.errors import SourceUnsupported
from changefeed.position import Position
from source.change_stream_cursor import ChangeStreamCursor
from source.connection import Client, Deployment, deployment_of
from source.ddl_watch import DdlCursor, ResumingDdlWatch
from source.majority_watch import MajorityWatch
from source.note import NoteKeeper
from source.oplog_watch import OplogCursor
from source.oplog_window import oldest_time_for_message


class DdlOrigin(StrEnum):
    """Where DDL is read; `auto` is the change stream wherever it shows all of it."""

    AUTO = "auto"
    CHANGE_STREAM = "change_stream"
    OPLOG = "oplog"


def chosen_origin(wish: DdlOrigin, deployment: Deployment) -> DdlOrigin:
    complete = deployment.shows_all_ddl
    version = ".".join(map(str, deployment.version))
    match wish:
        case DdlOrigin.AUTO if deployment.sharded and not complete:
            raise SourceUnsupported(
                f"the source is a sharded cluster of MongoDB {version}: its change streams show no indexes and options, and mongos "
                "shows no oplog; 6.0 is the oldest that can be read"
            )
        case DdlOrigin.AUTO:
            return DdlOrigin.CHANGE_STREAM if complete else DdlOrigin.OPLOG
        case DdlOrigin.OPLOG if deployment.sharded:
            raise SourceUnsupported(
                "the source is a sharded cluster, and mongos shows no oplog; watch its change stream"
            )
        case DdlOrigin.CHANGE_STREAM if not complete:
            raise SourceUnsupported(
                f"the change streams of MongoDB {version} show no creates, indexes and options; watch its oplog"
            )
        case _:
            return wish


def open_ddl_watch(client: Client, start: Position, origin: DdlOrigin = DdlOrigin.AUTO) -> ResumingDdlWatch:
    """The watch begins with the first poll."""
    deployment = deployment_of(client)
    cursor: DdlCursor
    if chosen_origin(origin, deployment) is DdlOrigin.OPLOG:
        cursor = OplogCursor(client)
    else:
        cursor = ChangeStreamCursor(client, sharded=deployment.sharded)
    notes, majority = NoteKeeper(client), MajorityWatch(client)
    return ResumingDdlWatch(cursor, start, notes, majority, partial(oldest_time_for_message, client))
