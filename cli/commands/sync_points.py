"""`sluice changefeed sync-points`, `sync-now`: positions at which source and target are equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection
from cli.command import ChangefeedArgument, OutputOption, connected
from cli.groups import examples
from cli.output import Output, plain, print_document, print_line, print_messages
from cli.tables import Column

_MADE_WITHIN_SECONDS = 30.0


def _excepted(point: pb.SyncPoint) -> str:
    return ", ".join(f"{'/'.join(table.source or table.target)} ({table.why})" for table in point.excepted)


def _verified(point: pb.SyncPoint) -> str:
    found = point.verified
    return f"{found.documents:,} documents, {found.different:,} differ" if point.HasField("verified") else "-"


_POINTS: Sequence[Column] = (
    Column("SOURCE AT", lambda point: cells.position(point.source_ts)),
    Column("SOURCE TIME", lambda point: point.source_ts),
    Column("TARGET TIME", lambda point: point.target_ts),
    Column("READABLE UNTIL", lambda point: cells.moment(point, "readable_until"), optional=True),
    Column("VERIFIED", _verified),
    Column("EXCEPT", _excepted, text=True),
)


@examples("sluice changefeed sync-points orders", "sluice changefeed sync-points orders -o json | jq '.[0]'")
@connected
def sync_points(
    connection: Connection,
    id: ChangefeedArgument,
    most: Annotated[int, typer.Option(help="The greatest number of points.", min=1, metavar="NUMBER")] = 20,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the points at which source and target are equal."""
    found = connection.ask(connection.changefeeds.ListSyncPoints, pb.ListSyncPointsRequest(id=id, most=most))
    print_messages(found.points, _POINTS, output, empty=f"changefeed {id} has no sync points yet")


@examples("sluice changefeed sync-now orders", "sluice changefeed sync-now orders -o json | jq -r .target_ts")
@connected
def sync_now(connection: Connection, id: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """Make a sync point at the next whole second."""
    request = pb.MakeSyncPointRequest(id=id)
    point = connection.ask(connection.changefeeds.MakeSyncPoint, request, timeout=_MADE_WITHIN_SECONDS).point
    if not output.for_people:
        print_document(plain(point), output)
        return
    print_line(f"the source at {point.source_ts} and the target at {point.target_ts} are equal")
    if point.excepted:
        print_line(f"except {_excepted(point)}")
