"""`sluice changefeed ensure`: creates what is missing, and reports what differs; for jobs that run again and again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Annotated

import typer
import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError
from cli import cells
from cli.channel import VALIDATION_SECONDS, Connection
from cli.command import TimeoutOption, connected
from cli.groups import examples
from cli.output import ExitCode, Failure, print_line, print_warnings
from cli.waiting import until, until_gone


@examples(
    "sluice changefeed ensure changefeeds/*.yaml",
    "sluice changefeed ensure orders.yaml --update",
    "sluice changefeed ensure changefeeds/*.yaml --prune team-a",
)
@connected
def ensure(
    connection: Connection,
    files: Annotated[list[Path], typer.Argument(help="Configuration files.", metavar="FILE")],
    *,
    update: Annotated[
        bool, typer.Option("--update", help="Pause and update changefeeds that differ, and resume those that ran.")
    ] = False,
    prune: Annotated[
        str, typer.Option(metavar="NAME", help="Also remove changefeeds that have managed_by: NAME and no file here.")
    ] = "",
    timeout: TimeoutOption = 60.0,
) -> None:
    """Create the changefeeds that are missing.

    Those that exist are compared with their files. What a user has removed is not created again.
    """
    failures = list(_failures(connection, files, timeout, update=update))
    if failures:
        raise Failure(ExitCode.FAILED, *failures)
    if prune:
        _prune(
            connection, prune, [Configuration.from_yaml(file.read_text(encoding="utf-8")) for file in files], timeout
        )


def _prune(connection: Connection, name: str, kept: list[Configuration], timeout: float) -> None:
    """Only after everything else has succeeded: a set that cannot be read whole removes nothing."""
    foreign = [each.id for each in kept if each.managed_by != name]
    if foreign:
        raise Failure(
            ExitCode.FAILED, f"--prune: found {', '.join(foreign)} without managed_by: {name}; nothing was removed"
        )
    answer = connection.ask(connection.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest())
    ids = {each.id for each in kept}
    for feed in answer.changefeeds:
        if feed.id not in ids and _managed_by(feed) == name and feed.desired != pb.DESIRED_STATE_REMOVED:
            connection.ask(connection.changefeeds.RemoveChangefeed, pb.RemoveChangefeedRequest(id=feed.id))
            until_gone(connection, feed.id, timeout)
            print_line(f"changefeed {feed.id} removed: it has managed_by: {name}, and no file")


def _managed_by(feed: pb.Changefeed) -> str | None:
    found: str | None = (yaml.safe_load(feed.configuration) or {}).get("managed_by")
    return found


def _failures(connection: Connection, files: list[Path], timeout: float, *, update: bool) -> Iterator[str]:
    for file in files:
        try:
            print_line(_ensured(connection, file.read_text(encoding="utf-8"), timeout, update=update))
        except OSError as error:
            yield f"{file}: {error.strerror}"
        except ConfigurationError as error:
            yield from (f"{file}: {problem}" for problem in error.problems)
        except Failure as failure:
            yield from (f"{file}: {failure.lines[0]}", *failure.lines[1:])


def _ensured(connection: Connection, text: str, timeout: float, *, update: bool) -> str:
    id = Configuration.from_yaml(text).id
    compared = connection.ask(connection.changefeeds.CompareChangefeed, pb.CompareChangefeedRequest(configuration=text))
    if compared.HasField("removed_at"):
        removed_at = compared.removed_at.ToDatetime(UTC)
        return (
            f"changefeed {id} was removed at {removed_at:%Y-%m-%d %H:%M:%S} UTC and is not created again; "
            f"`sluice changefeed create` does it"
        )
    if not compared.HasField("present"):
        request = pb.CreateChangefeedRequest(configuration=text, unless_removed=True)
        feed = connection.ask(connection.changefeeds.CreateChangefeed, request, timeout=VALIDATION_SECONDS)
        print_warnings(feed.warnings)
        return f"changefeed {id} created"
    return _compared(connection, compared, text, timeout, update=update)


def _compared(
    connection: Connection, compared: pb.CompareChangefeedResponse, text: str, timeout: float, *, update: bool
) -> str:
    feed, differing = compared.present, ", ".join(compared.differences)
    state = cells.state_of(feed)
    if not differing:
        return f"changefeed {feed.id} is {state}, and as configured"
    if state == "finished" or feed.desired == pb.DESIRED_STATE_REMOVED:
        return f"changefeed {feed.id} is {cells.state(feed)}; it differs in {differing}, and stays as it is"
    if not update:
        return (
            f"changefeed {feed.id} is {state}; it differs in {differing}, and is not changed. "
            "To change it: `sluice changefeed pause`, `update`, `resume`"
        )
    _update(connection, feed, text, timeout)
    return f"changefeed {feed.id} updated: {differing}"


def _update(connection: Connection, feed: pb.Changefeed, text: str, timeout: float) -> None:
    """A changefeed that ran continues, whether the update is accepted or refused."""
    runs = feed.desired == pb.DESIRED_STATE_RUNNING and cells.state_of(feed) != "failed"
    if runs:
        connection.ask(connection.changefeeds.PauseChangefeed, pb.PauseChangefeedRequest(id=feed.id))
        until(connection, feed.id, lambda seen: seen.obeyed, timeout, "stopped")
    try:
        request = pb.UpdateChangefeedRequest(id=feed.id, configuration=text)
        connection.ask(connection.changefeeds.UpdateChangefeed, request, timeout=VALIDATION_SECONDS)
        until(connection, feed.id, lambda seen: seen.obeyed, timeout, "updated")
    finally:
        if runs:
            connection.ask(connection.changefeeds.ResumeChangefeed, pb.ResumeChangefeedRequest(id=feed.id))
