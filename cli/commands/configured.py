"""`sluice changefeed create`, `validate`, `update`, `options`: the commands that take a configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.config import yaml_text
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import OPTIONS
from changefeed.config.options import merged
from changefeed.errors import RowRejected
from changefeed.printable import counted
from changefeed.records.requests import Reroute
from cli import cells
from cli.channel import VALIDATION_SECONDS, Connection
from cli.command import (
    ChangefeedArgument,
    OutputOption,
    TimeoutOption,
    WaitOption,
    YesOption,
    confirm,
    connected,
    read_configuration,
)
from cli.flags import Given, options_of
from cli.groups import examples
from cli.output import ExitCode, Failure, Output, plain, print_document, print_line, print_note, print_warnings
from cli.views import estimate_line, print_plan, update_lines
from cli.waiting import until

FileArgument = Annotated[
    str | None, typer.Argument(help="A configuration file; - reads standard input.", metavar="FILE")
]
ConfigOption = Annotated[
    str | None, typer.Option("--config", "-f", metavar="FILE", help="A configuration file; - reads standard input.")
]
_LIVE = ("copy_limit", "apply_limit", "delay")
_PANEL = "Options of the changefeed (they replace those of a file)"


@examples(
    "sluice changefeed create --config orders.yaml",
    "sluice changefeed create --id orders --source mongodb://a --sink mongodb://b",
    "sluice changefeed create - < orders.yaml",
    "sluice changefeed create orders.yaml --dry-run",
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
    """Create a changefeed, from a file or from flags.

    Flags replace options of the file. The source and the sink are checked first.
    """
    text = _written(file, config, given)
    if dry_run:
        _show_plan(connection, text, output)
        return
    request = pb.CreateChangefeedRequest(configuration=text)
    feed = connection.ask(connection.changefeeds.CreateChangefeed, request, timeout=VALIDATION_SECONDS)
    print_warnings(feed.warnings)
    if feed.HasField("estimate") and output.for_people:
        print_line(estimate_line(feed.estimate))
    if wait:
        feed = until(connection, feed.id, _has_begun, timeout, "begun")
    why = f", since {feed.capture_reason}" if feed.capture_reason else ""
    _tell(feed, output, f"changefeed {feed.id} created\ncapture: {feed.capture}{why}")


@examples("sluice changefeed validate orders.yaml", "sluice changefeed validate orders.yaml -o json")
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
    """Show what create would do, and all problems; change nothing.

    The same as create --dry-run.
    """
    _show_plan(connection, _written(file, config, given), output)


def _show_plan(connection: Connection, text: str, output: Output) -> None:
    """Everything is shown before a problem ends the command."""
    plan = _planned(connection, pb.PlanChangefeedRequest(create=pb.CreateChangefeedRequest(configuration=text)))
    if output.for_people:
        print_plan(plan)
    else:
        print_document(plain(plan), output)
    print_warnings(plan.warnings)
    _fail_for(plan.problems)
    if output.for_people:
        print_line("no problems")


def _planned(connection: Connection, request: pb.PlanChangefeedRequest) -> pb.Plan:
    plan = pb.Plan()
    for part in connection.stream(connection.changefeeds.PlanChangefeed, request, timeout=VALIDATION_SECONDS):
        plan.MergeFrom(part)
    return plan


def _fail_for(problems: Sequence[str]) -> None:
    if problems:
        raise Failure(
            ExitCode.FAILED, f"{counted(len(problems), 'problem')}:", *(f"  - {problem}" for problem in problems)
        )


@examples(
    "sluice changefeed update orders orders.yaml --dry-run",
    "sluice changefeed update orders orders.yaml --version 3 --yes",
    "sluice changefeed update orders orders.yaml --routes rename",
    "sluice changefeed update orders --capture oplog",
    "sluice changefeed update orders --tables 'shop.*' --tables 'crm.*'",
    "sluice changefeed update orders --copy-limit 20MB/s --apply-limit none --yes",
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
    """Change options of a changefeed, or replace its configuration.

    What this does is shown and confirmed first.

    Tables, limits and the delay change while it runs; the value none removes a limit or the delay.

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
    if dry_run and not output.for_people:
        print_document(plain(plan), output)
    _fail_for(plan.problems)
    if output.for_people:
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
    done = "unchanged" if feed.version == plan.version else f"updated to version {feed.version}{rest}"
    _tell(feed, output, f"changefeed {id} {done}")


@examples("sluice changefeed export orders > orders.yaml")
@connected
def export(connection: Connection, id: ChangefeedArgument) -> None:
    """Print the configuration of a changefeed, for create and update.

    With all options of its URIs. A secret that is written into them becomes a reference to an environment variable of the nodes.
    """
    found = connection.ask(connection.changefeeds.ExportChangefeed, pb.GetChangefeedRequest(id=id))
    if found.variables:
        print_note(
            f"set {', '.join(found.variables)} on the nodes before you use it: secrets were written into its URIs"
        )
    sys.stdout.write(found.configuration)


@examples("sluice changefeed options", "sluice changefeed options -o json")
def options(output: OutputOption = Output.TABLE) -> None:
    """List the options, and when each can be changed.

    While the changefeed runs, while it is paused, or only when it is created.
    """
    if not output.for_people:
        print_document([{"option": name, "changes": changes.value} for name, changes in OPTIONS.items()], output)
        return
    width = max(map(len, OPTIONS))
    for name, changes in OPTIONS.items():
        print_line(f"{name:{width}}  {changes}")


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


def _tell(feed: pb.Changefeed, output: Output, line: str) -> None:
    if output.for_people:
        for each in line.split("\n"):
            print_line(each)
    else:
        print_document(plain(feed), output)


def _has_begun(feed: pb.Changefeed) -> bool:
    """Dead letters that an earlier changefeed of this name has left are no failure of this one."""
    if feed.open_letters.count and feed.error.code == RowRejected.code:
        return bool(feed.checkpoint)
    if cells.unreadable(feed):
        raise Failure(ExitCode.FAILED, f"changefeed {feed.id} was created, but is unreadable: {feed.error.message}")
    if cells.state_of(feed) in ("failed", "warning", "pending"):
        reason = feed.error.message
        raise Failure(ExitCode.FAILED, f"changefeed {feed.id} was created, but is {cells.state_of(feed)}: {reason}")
    return bool(feed.checkpoint)
