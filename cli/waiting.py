"""`until`: waits for a changefeed to get somewhere, and says why it has not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection
from cli.output import ExitCode, Failure


def until(
    connection: Connection,
    id: str,
    condition: Callable[[pb.Changefeed], bool],
    timeout: float,
    what: str,
    *,
    asked: bool = True,
) -> pb.Changefeed:
    """`asked`: a request waits to be carried out, which is not so for one who only looks on."""
    for feed in _watched(connection, id, timeout, what, asked=asked):
        if condition(feed):
            return feed
    raise Failure(ExitCode.NOT_FOUND, f"changefeed {id} was removed meanwhile")


def until_gone(connection: Connection, id: str, timeout: float) -> None:
    try:
        for _ in _watched(connection, id, timeout, "removed"):
            pass
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_FOUND:
            raise


_CAUGHT_UP_SECONDS = 10
_LOOK_EVERY = 2.0
_STATES = {state.removeprefix("CHANGEFEED_STATE_").lower() for state in pb.ChangefeedState.keys()} - {"unspecified"}  # noqa: SIM118 - no dict
_FINAL = ("failed", "finished", "removed", "unreadable", "stopped")


def wait_for(connection: Connection, id: str, condition: str, timeout: float) -> str:
    """Return the condition, with what waits for a user beside it. Raises if the changefeed has not got there in time, or cannot by itself any more."""
    kind, _, state = condition.partition("=")
    if condition == "ready":
        _until_ready(connection, id, timeout)
        return condition
    reached: Callable[[pb.Changefeed], bool]
    if condition == "caught-up":
        what, reached = "caught up", lambda feed: _goes_on(feed, condition) and _caught_up(feed)
    elif kind == "state" and state in _STATES:
        what, reached = state, lambda feed: cells.state_of(feed) == state or not _goes_on(feed, condition)
    else:
        raise Failure(
            ExitCode.USAGE,
            f"--for: found {condition!r}; write ready, caught-up or state=STATE with one of {', '.join(sorted(_STATES))}",
        )
    found = until(connection, id, reached, timeout, what, asked=False)
    return f"{condition}, {found.attention}" if found.attention else condition


def _caught_up(feed: pb.Changefeed) -> bool:
    behind = feed.lag.ToTimedelta().total_seconds() if feed.HasField("lag") else None
    return bool(feed.checkpoint) and not feed.HasField("copy") and behind is not None and behind < _CAUGHT_UP_SECONDS


def _goes_on(feed: pb.Changefeed, condition: str) -> bool:
    """A state that only a user can change is not waited in."""
    state = cells.state_of(feed)
    if feed.obeyed and state in _FINAL:
        why = f": {feed.error.message}" if feed.HasField("error") else ""
        raise Failure(ExitCode.FAILED, f"changefeed {feed.id} is {state}, and {condition} is not reached{why}")
    return True


def _until_ready(connection: Connection, id: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while True:
        found = connection.ask(connection.changefeeds.GetReadiness, pb.GetReadinessRequest(id=id))
        if found.ready:
            return
        if time.monotonic() >= deadline:
            obstacles = [f"  - {each.message}" for each in found.findings if each.in_the_way]
            raise Failure(ExitCode.FAILED, f"changefeed {id} is not ready after {timeout:g} s:", *obstacles)
        time.sleep(_LOOK_EVERY)


def _watched(
    connection: Connection, id: str, timeout: float, what: str, *, asked: bool = True
) -> Iterator[pb.Changefeed]:
    deadline = time.monotonic() + timeout
    request = pb.WatchChangefeedRequest(id=id)
    shown: pb.Changefeed | None = None
    try:
        for shown in connection.stream(connection.changefeeds.WatchChangefeed, request, timeout=timeout):
            yield shown
    except Failure as failure:
        if failure.exit_code is ExitCode.UNREACHABLE and time.monotonic() >= deadline:
            late = f"changefeed {id} is not {what} after {timeout:g} s"
            if not asked and shown is not None:
                raise Failure(ExitCode.FAILED, f"{late}: it is {cells.state(shown)}") from None
            raise Failure(
                ExitCode.FAILED,
                f"{late}; the request stays in effect",
                waits_for(shown, connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest()).nodes),
            ) from None
        raise


def waits_for(feed: pb.Changefeed | None, nodes: Sequence[pb.Node]) -> str:
    """Why a request is not carried out yet, and what to do. `feed`: as it was shown last."""
    if not any(node.owner for node in nodes):
        return "the cluster has no owner: check `sluice node list`"
    if feed is None:
        return "the owner has not begun with it: check the log of the node that `sluice node list` shows as owner"
    if feed.still_on:
        return (
            f"tasks of it still run on {', '.join(feed.still_on)}: one that does not end is cancelled after half a minute, and its worker killed; "
            "the log there says at which row it stands (task_stands_still)"
        )
    if feed.HasField("error"):
        return f"{feed.error.code}: {feed.error.message}"
    return f"it is {cells.state_of(feed)}: check `sluice changefeed query {feed.id}`, and the owner's log"
