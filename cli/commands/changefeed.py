"""`sluice changefeed`: what it shows of changefeeds, and the verbs that need no configuration."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection
from cli.command import (
    ChangefeedArgument,
    ChangefeedsArgument,
    OutputOption,
    TimeoutOption,
    WaitOption,
    WatchOption,
    YesOption,
    confirm,
    connected,
    listed,
)
from cli.groups import examples
from cli.output import Output, draw, page, plain, print_document, print_facts, print_line, print_messages, print_note
from cli.tables import fact_lines
from cli.views import HISTORY, LISTED, changed_line, facts
from cli.waiting import until, until_gone, wait_for


@examples("sluice changefeed list", "sluice changefeed list --watch", "sluice changefeed list -o json | jq '.[].lag'")
@connected
def list_(connection: Connection, *, watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List all changefeeds with their state and lag."""

    def feeds() -> Sequence[pb.Changefeed]:
        found: Sequence[pb.Changefeed] = connection.ask(
            connection.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest()
        ).changefeeds
        return found

    listed(feeds, LISTED, output, watch=watch, empty="no changefeeds; create one with `sluice changefeed create`")


@examples("sluice changefeed query orders", "sluice changefeed query orders payments -o yaml")
@connected
def query(connection: Connection, ids: ChangefeedsArgument, output: OutputOption = Output.TABLE) -> None:
    """Show everything about changefeeds.

    For several, -o json and -o yaml print a list.
    """
    feeds = [feed_of(connection, id) for id in ids]
    if stale := cells.as_of(feeds):
        print_note(stale)
    if output.for_people:
        for number, feed in enumerate(feeds):
            print_facts([*([("", " ")] if number else []), *facts(feed)])
    elif output is Output.NAME or len(feeds) == 1:
        for feed in feeds:
            print_document(plain(feed), output)
    else:
        print_document([plain(feed) for feed in feeds], output)


@examples("sluice changefeed pause orders", "sluice changefeed pause orders payments --no-wait")
@connected
def pause(
    connection: Connection, ids: ChangefeedsArgument, wait: WaitOption = True, timeout: TimeoutOption = 60.0
) -> None:
    """Stop replicating; resume continues at the same position."""
    if len(ids) > 1:
        _look_up(connection, ids)
    for id in ids:
        connection.ask(connection.changefeeds.PauseChangefeed, pb.PauseChangefeedRequest(id=id))
    for id in ids:
        if wait:
            until(connection, id, lambda feed: feed.obeyed, timeout, "stopped")
        print_line(f"changefeed {id} paused")


@examples("sluice changefeed resume orders", "sluice changefeed resume orders --start now --yes")
@connected
def resume(
    connection: Connection,
    ids: ChangefeedsArgument,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="START", help="Continue from now, a time or a cluster time; skipped changes are not replicated."
        ),
    ] = None,
    wait: WaitOption = True,
    timeout: TimeoutOption = 60.0,
    yes: YesOption = False,
) -> None:
    """Resume changefeeds that are paused, failed or finished."""
    if len(ids) > 1 or start is not None:
        _look_up(connection, ids)
    if start is not None:
        confirm(f"Resume {', '.join(ids)} at {start} instead of the checkpoint?", yes=yes)
    for id in ids:
        connection.ask(connection.changefeeds.ResumeChangefeed, pb.ResumeChangefeedRequest(id=id, start=start or ""))
    for id in ids:
        if wait:
            until(connection, id, lambda feed: feed.obeyed, timeout, "resumed")
        print_line(f"changefeed {id} resumed")


@examples("sluice changefeed remove orders --yes")
@connected
def remove(
    connection: Connection,
    ids: ChangefeedsArgument,
    wait: WaitOption = True,
    timeout: TimeoutOption = 60.0,
    yes: YesOption = False,
) -> None:
    """Remove changefeeds; the replicated data stays at the target."""
    found = [feed_of(connection, id) for id in ids]
    told = ", ".join(f"{feed.id} ({cells.state(feed)})" for feed in found)
    confirm(f"Remove {told}, with checkpoint?", yes=yes)
    for id in ids:
        answer = connection.ask(connection.changefeeds.RemoveChangefeed, pb.RemoveChangefeedRequest(id=id))
        if answer.left:
            print_note(answer.left)
    for id in ids:
        if wait:
            until_gone(connection, id, timeout)
        print_line(f"changefeed {id} removed" if wait else f"changefeed {id} is being removed")


@examples("sluice changefeed watch orders", "sluice changefeed watch orders -o json | jq .lag")
@connected
def watch(connection: Connection, id: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a changefeed after each change, until Ctrl-C.

    It is drawn in place on a terminal; elsewhere there is a line or a document for each change.
    """
    feeds = connection.stream(connection.changefeeds.WatchChangefeed, pb.WatchChangefeedRequest(id=id))
    try:
        if output.for_people and sys.stdout.isatty():
            draw(_frames(feeds))
        else:
            for feed in feeds:
                if output.for_people:
                    print_line(changed_line(feed))
                else:
                    print_document(plain(feed), output)
    except KeyboardInterrupt:
        return
    if output.for_people:
        print_line(f"changefeed {id} was removed")


@examples("sluice changefeed history orders", "sluice changefeed history orders --changes -o json")
@connected
def history(
    connection: Connection,
    id: ChangefeedArgument,
    *,
    changes: Annotated[bool, typer.Option("--changes", help="Only what users have changed.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show who changed a changefeed, its states and schema changes.

    The newest last. It can be asked for a week after the changefeed was removed.
    """
    found = connection.stream(connection.changefeeds.ListHistory, pb.ListHistoryRequest(changefeed=id))
    shown = [entry for entry in found if not changes or entry.kind == "change"]
    print_messages(shown, HISTORY, output, empty=f"nothing is known of what was done to changefeed {id}")


@examples(
    "sluice changefeed wait orders --for caught-up", "sluice changefeed wait orders --for state=finished --timeout 3600"
)
@connected
def wait(
    connection: Connection,
    id: ChangefeedArgument,
    *,
    condition: Annotated[
        str, typer.Option("--for", metavar="CONDITION", help="ready (for a cut-over), caught-up or state=STATE.")
    ],
    timeout: TimeoutOption = 300.0,
) -> None:
    """Wait until a changefeed has caught up, or has a state.

    The exit code is 0 when it has, 1 if it has not in time or cannot any more, and 3 if there is no such changefeed.
    """
    print_line(f"changefeed {id}: {wait_for(connection, id, condition, timeout)}")


def feed_of(connection: Connection, id: str) -> pb.Changefeed:
    feed: pb.Changefeed = connection.ask(connection.changefeeds.GetChangefeed, pb.GetChangefeedRequest(id=id))
    return feed


def _look_up(connection: Connection, ids: Sequence[str]) -> None:
    """Before any of them is changed: one that does not exist leaves all as they are."""
    for id in ids:
        feed_of(connection, id)


def _frames(feeds: Iterable[pb.Changefeed]) -> Iterator[Iterator[str]]:
    """The configuration, which may be long, is what `query` is for."""
    for feed in feeds:
        shown = [(name, value) for name, value in facts(feed) if name != "configuration"]
        yield fact_lines([*shown, ("seen", cells.moment_now())], page())
