"""`sluice changefeed ready`, `sluice changefeed finalize`: the end of a migration."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection
from cli.command import ChangefeedArgument, OutputOption, YesOption, confirm, connected
from cli.output import ExitCode, Failure, Output, plain, print_document, print_line

_READINESS_SECONDS = 90.0


@connected
def ready(
    connection: Connection,
    id: ChangefeedArgument,
    within: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="Not ready if the cut-over would take longer.")
    ] = 60.0,
    leave_stopped: Annotated[
        bool, typer.Option("--leave-stopped", help="Stopped tables are not in the way; they stay as they are.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Say whether a cut-over would succeed now and how long it would take. Ends with 0 if it would, and with 1 if not."""
    request = pb.GetReadinessRequest(id=id, leave_stopped=leave_stopped)
    request.within.FromTimedelta(timedelta(seconds=within))
    found = connection.ask(connection.changefeeds.GetReadiness, request, timeout=_READINESS_SECONDS)
    if output is not Output.TABLE:
        print_document(plain(found), output)
    else:
        for finding in found.findings:
            if not finding.in_the_way and finding.kind != "finished":
                print_line(finding.message)
    obstacles = [finding.message for finding in found.findings if finding.in_the_way]
    if obstacles:
        raise Failure(
            ExitCode.FAILED, f"changefeed {id} is not ready for its cut-over:", *(f"  - {each}" for each in obstacles)
        )
    if output is Output.TABLE:
        takes = found.takes.ToTimedelta().total_seconds()
        print_line(
            f"changefeed {id} is ready; its cut-over takes about {takes:.0f}s"
            if takes
            else f"changefeed {id} has finished"
        )


@connected
def finalize(
    connection: Connection,
    id: ChangefeedArgument,
    leave_stopped: Annotated[
        bool, typer.Option("--leave-stopped", help="Finish although tables are stopped; they stay as they are.")
    ] = False,
    block_writes: Annotated[
        bool,
        typer.Option(
            "--block-writes", help="Block the writes of the source's users first (6.0 or later). They stay blocked."
        ),
    ] = False,
    yes: YesOption = False,
) -> None:
    """Cut over: replicate all changes until now, finish, and restore the expiry of documents downstream.

    Stop the writers at the source first, or have them blocked. After an interruption, run the command again.
    """
    later = "The source's users write no more." if block_writes else "Later writes at the source are not replicated."
    confirm(f"Finish changefeed {id} now? {later}", yes=yes)
    request = pb.FinalizeChangefeedRequest(id=id, leave_stopped=leave_stopped, block_writes=block_writes)
    blocked = False
    for progress in connection.stream(connection.changefeeds.FinalizeChangefeed, request):
        if progress.block_lifted_by:
            blocked = True
            print_line(
                f"the source's users write no more; an administrator lifts that at the source by {progress.block_lifted_by}"
            )
            continue
        if not progress.done:
            left = progress.left.ToTimedelta().total_seconds()
            print_line(f"at {cells.position(progress.checkpoint)}, {left:.0f}s left")
            continue
        print_line(f"changefeed {id} finished at {progress.target}; expiries restored downstream: {progress.restored}")
        if block_writes and not blocked:
            print_line("no writes were blocked: it had finished before this call")
        if progress.problems:
            raise Failure(ExitCode.FAILED, "not restored:", *(f"  - {problem}" for problem in progress.problems))
        return
    raise Failure(ExitCode.FAILED, "the server stopped before the changefeed was finished; run the command again")
