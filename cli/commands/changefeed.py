"""`sluice changefeed`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated

import typer
import yaml
from rich.live import Live

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config import yaml_text
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import OPTIONS
from changefeed.config.options import merged
from changefeed.errors import RowRejected
from changefeed.lifecycle import State
from changefeed.records.requests import Reroute
from cli import cells
from cli.channel import Connection
from cli.command import (
    ChangefeedArgument,
    Commands,
    OutputOption,
    TimeoutOption,
    WaitOption,
    YesOption,
    confirm,
    connected,
    read_configuration,
)
from cli.flags import Given, options_of
from cli.output import (
    ExitCode,
    Failure,
    Output,
    console,
    facts_table,
    plain,
    print_document,
    print_facts,
    print_line,
    print_messages,
    print_note,
    print_warnings,
)
from cli.views import LISTED, changed_line, estimate_line, facts, print_plan, update_lines, waits_for

app = Commands(help="Create, show and control changefeeds.")

VALIDATION_SECONDS = 90.0

FileArgument = Annotated[
    str | None, typer.Argument(help="A configuration file; - reads standard input.", metavar="[FILE]")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", "-f", metavar="FILE", help="A configuration file; - reads standard input.")
]
_LIVE = ("copy_limit", "apply_limit", "delay")
_PANEL = "Options of the changefeed, instead of those in a file"


@app.command(
    epilog="sluice changefeed create --config orders.yaml\n\n"
    "sluice changefeed create --id orders --source mongodb://db1 --sink mongodb://dr1 --tables 'shop.*'\n\n"
    "cat orders.yaml | sluice changefeed create -\n\nsluice changefeed create orders.yaml --dry-run"
)
@connected
@options_of(Configuration, panel=_PANEL)
def create(
    connection: Connection,
    file: FileArgument = None,
    *,
    config: ConfigOption = None,
    given: Given,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be created and copied, and all findings; change nothing.")
    ] = False,
    wait: WaitOption = True,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create a changefeed from a file, or from flags; the source and the sink are checked first."""
    text = _written(file, config, given)
    if dry_run:
        _show_plan(connection, text, output)
        return
    request = pb.CreateChangefeedRequest(configuration=text)
    feed = connection.ask(connection.changefeeds.CreateChangefeed, request, timeout=VALIDATION_SECONDS)
    print_warnings(feed.warnings)
    if feed.HasField("estimate") and output is Output.TABLE:
        print_line(estimate_line(feed.estimate))
    if wait:
        feed = until(connection, feed.id, _has_begun, timeout, "begun")
    _tell(feed, output, f"changefeed {feed.id} created\n{_captured(feed.capture, feed.capture_reason)}")


@app.command(epilog="sluice changefeed validate orders.yaml\n\nsluice changefeed validate orders.yaml -o json")
@connected
@options_of(Configuration, panel=_PANEL)
def validate(
    connection: Connection,
    file: FileArgument = None,
    *,
    given: Given,
    config: ConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what would be created and copied, and all findings; change nothing. The same as create --dry-run."""
    _show_plan(connection, _written(file, config, given), output)


def _show_plan(connection: Connection, text: str, output: Output) -> None:
    """Everything is shown before a problem ends the command."""
    plan = _planned(connection, pb.PlanChangefeedRequest(create=pb.CreateChangefeedRequest(configuration=text)))
    if output is Output.TABLE:
        print_plan(plan)
    else:
        print_document(plain(plan), output)
    print_warnings(plan.warnings)
    _fail_for(plan.problems)
    if output is Output.TABLE:
        print_line("no problems")


def _planned(connection: Connection, request: pb.PlanChangefeedRequest) -> pb.Plan:
    plan = pb.Plan()
    for part in connection.stream(connection.changefeeds.PlanChangefeed, request, timeout=VALIDATION_SECONDS):
        plan.MergeFrom(part)
    return plan


def _fail_for(problems: Sequence[str]) -> None:
    if problems:
        heading = "1 problem:" if len(problems) == 1 else f"{len(problems)} problems:"
        raise Failure(ExitCode.FAILED, heading, *(f"  - {problem}" for problem in problems))


@app.command("list", epilog="sluice changefeed list\n\nsluice changefeed list -o json | jq '.[].lag'")
@connected
def list_(connection: Connection, output: OutputOption = Output.TABLE) -> None:
    """List all changefeeds, with their state and lag."""
    answer = connection.ask(connection.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest())
    print_messages(
        answer.changefeeds, LISTED, output, empty="no changefeeds; create one with `sluice changefeed create`"
    )


@app.command(epilog="sluice changefeed query orders\n\nsluice changefeed query orders -o yaml")
@connected
def query(connection: Connection, id: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """Show everything about one changefeed."""
    feed = connection.ask(connection.changefeeds.GetChangefeed, pb.GetChangefeedRequest(id=id))
    if output is Output.TABLE:
        print_facts(facts(feed))
    else:
        print_document(plain(feed), output)


@app.command(epilog="sluice changefeed pause orders")
@connected
def pause(
    connection: Connection, id: ChangefeedArgument, wait: WaitOption = True, timeout: TimeoutOption = 60.0
) -> None:
    """Stop replicating; resume continues at the same position."""
    connection.ask(connection.changefeeds.PauseChangefeed, pb.PauseChangefeedRequest(id=id))
    if wait:
        until(connection, id, lambda feed: feed.obeyed, timeout, "stopped")
    print_line(f"changefeed {id} paused")


@app.command(epilog="sluice changefeed resume orders\n\nsluice changefeed resume orders --start now --yes")
@connected
def resume(
    connection: Connection,
    id: ChangefeedArgument,
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
    """Resume a changefeed that is paused, failed or finished."""
    if start is not None:
        confirm(f"Resume {id} at {start} instead of its checkpoint?", yes=yes)
    request = pb.ResumeChangefeedRequest(id=id, start=start or "")
    connection.ask(connection.changefeeds.ResumeChangefeed, request)
    if wait:
        until(connection, id, lambda feed: feed.obeyed, timeout, "resumed")
    print_line(f"changefeed {id} resumed")


@app.command(
    epilog="sluice changefeed update orders orders.yaml --dry-run\n\nsluice changefeed update orders - --version 3 --yes\n\n"
    "sluice changefeed update orders orders.yaml --routes rename\n\nsluice changefeed update orders --capture oplog\n\n"
    "sluice changefeed update orders --tables 'shop.*' --tables 'crm.*'\n\n"
    "sluice changefeed update orders --copy-limit 20MB/s --apply-limit none --yes"
)
@connected
@options_of(Configuration, only=("capture", *_LIVE, "filter.tables"), panel=_PANEL, defaults=False)
def update(
    connection: Connection,
    id: ChangefeedArgument,
    file: FileArgument = None,
    *,
    config: ConfigOption = None,
    given: Given,
    version: Annotated[
        int, typer.Option(min=0, help="Refuse if the changefeed has another version; 0: accept any version.")
    ] = 0,
    routes: Annotated[
        Reroute | None,
        typer.Option(
            help="For changed routes: rename the target's tables, or copy the source's anew to the new names; the old tables then stay."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the update would do, and change nothing.")
    ] = False,
    yes: YesOption = False,
    wait: WaitOption = True,
    timeout: TimeoutOption = 60.0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change single options of a changefeed, or replace its configuration. What this does is shown and confirmed first.

    Tables, limits and the delay change while it runs; none removes a limit or the delay.

    For other options pause it first: see sluice changefeed options.
    """
    alone = bool(given.values) and file is None and config is None
    request = pb.UpdateChangefeedRequest(
        id=id,
        configuration="" if alone else _checked(read_configuration(file, config, "update")),
        expected_version=version,
        capture=given.values.get("capture", ""),
        routes=routes or "",
        tables=given.values.get("filter.tables", ()),
        **{name: given.values[name] for name in _LIVE if name in given.values},
    )
    plan = _planned(connection, pb.PlanChangefeedRequest(update=request))
    print_warnings(plan.warnings)
    if dry_run and output is not Output.TABLE:
        print_document(plain(plan), output)
    _fail_for(plan.problems)
    if output is Output.TABLE:
        for line in list(update_lines(plan)) or ["nothing changes"]:
            print_line(line)
    if dry_run:
        return
    confirm(f"Update {id}?", yes=yes)
    request.expected_version = plan.version
    feed = connection.ask(connection.changefeeds.UpdateChangefeed, request, timeout=VALIDATION_SECONDS)
    if wait:
        feed = until(connection, id, lambda feed: feed.obeyed, timeout, "updated")
    rest = "; resume it to continue" if feed.desired == pb.DESIRED_STATE_PAUSED else ""
    _tell(feed, output, f"changefeed {id} updated to version {feed.version}{rest}")


@app.command(epilog="sluice changefeed options\n\nsluice changefeed options -o json")
def options(output: OutputOption = Output.TABLE) -> None:
    """List the options of a changefeed: which change while it runs, with a pause, or only at create."""
    if output is not Output.TABLE:
        print_document([{"option": name, "changes": changes.value} for name, changes in OPTIONS.items()], output)
        return
    width = max(map(len, OPTIONS))
    for name, changes in OPTIONS.items():
        print_line(f"{name:{width}}  {changes}")


@app.command(epilog="sluice changefeed remove orders --yes")
@connected
def remove(
    connection: Connection,
    id: ChangefeedArgument,
    wait: WaitOption = True,
    timeout: TimeoutOption = 60.0,
    yes: YesOption = False,
) -> None:
    """Remove a changefeed and its checkpoint. The replicated data stays at the target."""
    confirm(f"Remove changefeed {id} and its checkpoint?", yes=yes)
    answer = connection.ask(connection.changefeeds.RemoveChangefeed, pb.RemoveChangefeedRequest(id=id))
    if answer.left:
        print_note(answer.left)
    if wait:
        _until_gone(connection, id, timeout)
    print_line(f"changefeed {id} removed" if wait else f"changefeed {id} is being removed")


@app.command(epilog="sluice changefeed watch orders\n\nsluice changefeed watch orders -o json | jq .lag")
@connected
def watch(connection: Connection, id: ChangefeedArgument, output: OutputOption = Output.TABLE) -> None:
    """Show a changefeed after each change, until Ctrl-C: in place on a terminal, otherwise a line or a document for each change."""
    feeds = connection.stream(connection.changefeeds.WatchChangefeed, pb.WatchChangefeedRequest(id=id))
    try:
        if output is Output.TABLE and sys.stdout.isatty():
            _draw(feeds)
        else:
            for feed in feeds:
                if output is Output.TABLE:
                    print_line(changed_line(feed))
                else:
                    print_document(plain(feed), output)
    except KeyboardInterrupt:
        return
    if output is Output.TABLE:
        print_line(f"changefeed {id} was removed")


def _draw(feeds: Iterable[pb.Changefeed]) -> None:
    """The configuration, which may be long, is what `query` is for."""
    with Live(console=console(), auto_refresh=False, vertical_overflow="ellipsis") as drawn:
        for feed in feeds:
            shown = [(name, value) for name, value in facts(feed) if name != "configuration"]
            drawn.update(facts_table([*shown, ("seen", cells.moment_now())]), refresh=True)


def _written(file: str | None, config: str | None, given: Given) -> str:
    """The configuration as YAML: from a file, from flags, or from a file with fields that flags replace."""
    if file is None and config is None:
        if not given.values:
            raise Failure(ExitCode.USAGE, "give a configuration file, or --id, --source and --sink; see --help")
        return _checked(yaml.safe_dump(given.fields))
    text = read_configuration(file, config, "create")
    if given.values:
        text = yaml.safe_dump(merged(yaml_text.read(text), given.fields), sort_keys=False, allow_unicode=True)
    return _checked(text)


def _checked(text: str) -> str:
    """Finds mistakes of the configuration itself without a server."""
    Configuration.from_yaml(text)
    return text


def _captured(capture: str, reason: str) -> str:
    return f"capture: {capture}" + (f", since {reason}" if reason else "")


def _tell(feed: pb.Changefeed, output: Output, line: str) -> None:
    if output is Output.TABLE:
        print_line(line)
    else:
        print_document(plain(feed), output)


def _has_begun(feed: pb.Changefeed) -> bool:
    """Dead letters that an earlier changefeed of this name has left are no failure of this one."""
    if feed.open_letters.count and feed.error.code == RowRejected.code:
        return bool(feed.checkpoint)
    if cells.unreadable(feed):
        raise Failure(ExitCode.FAILED, f"changefeed {feed.id} was created, but is unreadable: {feed.error.message}")
    if cells.state_of(feed) in (State.FAILED, State.WARNING, State.PENDING):
        reason = feed.error.message
        raise Failure(ExitCode.FAILED, f"changefeed {feed.id} was created, but is {cells.state_of(feed)}: {reason}")
    return bool(feed.checkpoint)


def until(
    connection: Connection, id: str, condition: Callable[[pb.Changefeed], bool], timeout: float, what: str
) -> pb.Changefeed:
    for feed in _watched(connection, id, timeout, what):
        if condition(feed):
            return feed
    raise Failure(ExitCode.NOT_FOUND, f"changefeed {id} was removed meanwhile")


def _until_gone(connection: Connection, id: str, timeout: float) -> None:
    try:
        for _ in _watched(connection, id, timeout, "removed"):
            pass
    except Failure as failure:
        if failure.exit_code is not ExitCode.NOT_FOUND:
            raise


def _watched(connection: Connection, id: str, timeout: float, what: str) -> Iterator[pb.Changefeed]:
    deadline = time.monotonic() + timeout
    request = pb.WatchChangefeedRequest(id=id)
    shown: pb.Changefeed | None = None
    try:
        for shown in connection.stream(connection.changefeeds.WatchChangefeed, request, timeout=timeout):
            yield shown
    except Failure as failure:
        if failure.exit_code is ExitCode.UNREACHABLE and time.monotonic() >= deadline:
            raise Failure(
                ExitCode.FAILED,
                f"changefeed {id} is not {what} after {timeout:g} s; the request stays in effect",
                waits_for(shown, connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest()).nodes),
            ) from None
        raise
