"""Pictures whose every text is one given text: what pages make of names that users chose."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from console.picture import ClusterPicture, FeedFigures, FeedPicture, Lane, TablePage, TableQuery, Task

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
POSITION = f"{int(NOW.timestamp()) - 4}.1"
_POSITIONS = {"checkpoint", "resolved", "barrier", "position", "schema_valid_from", "first_position", "source_ts"}
_TIME, _SPAN = "google.protobuf.Timestamp", "google.protobuf.Duration"


def filled(message: Any, text: str) -> Any:
    """With every field set, at each depth."""
    for field in message.DESCRIPTOR.fields:
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if field.is_repeated:
                filled(getattr(message, field.name).add(), text)
            else:
                _set(getattr(message, field.name), field.message_type.full_name, text)
        elif field.type == FieldDescriptor.TYPE_STRING:
            value = POSITION if field.name in _POSITIONS else text
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)
        elif field.type not in (FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_BOOL):
            setattr(message, field.name, 1)
    return message


def _set(message: Any, kind: str, text: str) -> None:
    if kind == _TIME:
        message.FromDatetime(NOW - timedelta(seconds=60))
    elif kind == _SPAN:
        message.FromTimedelta(timedelta(seconds=3))
    else:
        filled(message, text)


def feed(text: str, **changed: Any) -> pb.Changefeed:
    found: pb.Changefeed = filled(pb.Changefeed(), text)
    found.state, found.obeyed, found.desired = pb.CHANGEFEED_STATE_WARNING, True, pb.DESIRED_STATE_RUNNING
    for name, value in changed.items():
        setattr(found, name, value)
    return found


FIGURES = FeedFigures(
    lags=[(NOW.timestamp() - 20 * number, 1.0 + number % 7) for number in range(60, 0, -1)],
    rows_rate=12.0,
    oplog_left=timedelta(hours=7),
)


def cluster_picture(text: str) -> ClusterPicture:
    node: pb.Node = filled(pb.Node(), text)
    node.roles.append("processor")
    return ClusterPicture(
        at=NOW,
        owner=text,
        serving=text,
        nodes=[node],
        feeds=[feed(text)],
        figures={text: FIGURES},
    )


def feed_picture(text: str, make: Callable[[str], pb.Changefeed] = feed) -> FeedPicture:
    refused: pb.Ddl = filled(pb.Ddl(), text)
    refused.state = "pending"
    waiting: pb.Ddl = filled(pb.Ddl(), text)
    waiting.state = "executing"
    waiting.ClearField("refused")
    waiting.ClearField("done_at")
    lanes = [
        Lane(node=text, position=POSITION, tables=5, barrier=POSITION, some=[text, text], ddl=text),
        Lane(node=text, position=f"{int(NOW.timestamp()) - 3600}.1", tables=1, barrier="", some=[text], trouble=text),
    ]
    task = Task(verb=text, started_at=NOW, said=text, ended_at=NOW, failed=True, lines=[text])
    return FeedPicture(
        at=NOW,
        feed=make(text),
        figures=FIGURES,
        barrier=POSITION,
        lanes=lanes,
        ddls=[refused, waiting, filled(pb.Ddl(), text)],
        tables=TablePage(
            query=TableQuery(text=text, state=text, page=2),
            states={text: 300},
            matching=300,
            tables=[filled(pb.Table(), text)],
        ),
        nodes=[(text, 3)],
        names={text: text},
        tasks=[task],
    )
