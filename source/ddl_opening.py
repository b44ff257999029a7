"""`open_ddl_watch`: the DDL watch of a source, for its capture."""

from __future__ import annotations

from functools import partial

from changefeed.capture import Capture
from changefeed.errors import SourceUnsupported
from changefeed.position import Position
from source.connection import Client, Deployment, deployment_of
from source.ddl.ddl_watch import DdlWatch
from source.majority_watch import MajorityWatch
from source.oplog.ddl_entry import BEFORE_ROWS, WITH_ROWS
from source.oplog.ddl_watch import OplogDdlWatch
from source.oplog.window import oldest_time_for_message
from source.stream.change_stream_cursor import ChangeStreamCursor
from source.stream.note import NoteKeeper
from source.stream.resuming_ddl_watch import ResumingDdlWatch


def reads_oplog(capture: Capture, deployment: Deployment) -> bool:
    """Whether DDL is read from the oplog: with the oplog capture, and where change streams do not show all DDL."""
    version = ".".join(map(str, deployment.version))
    if not deployment.sharded:
        return capture is Capture.OPLOG or not deployment.shows_all_ddl
    if capture is Capture.OPLOG:
        raise SourceUnsupported(
            "the source is a sharded cluster, and mongos shows no oplog; write capture: change_stream"
        )
    if not deployment.shows_all_ddl:
        raise SourceUnsupported(
            f"the source is a sharded cluster of MongoDB {version}: its change streams show no indexes and options, and mongos "
            "shows no oplog; the oldest supported version of a sharded cluster is 6.0"
        )
    return False


def open_ddl_watch(client: Client, start: Position, capture: Capture) -> DdlWatch:
    """The watch begins with the first poll."""
    deployment = deployment_of(client)
    if reads_oplog(capture, deployment):
        return OplogDdlWatch(client, start, WITH_ROWS if capture is Capture.OPLOG else BEFORE_ROWS)
    cursor = ChangeStreamCursor(client, sharded=deployment.sharded)
    notes, majority = NoteKeeper(client), MajorityWatch(client)
    return ResumingDdlWatch(cursor, start, notes, majority, partial(oldest_time_for_message, client))
