"""`sluice changefeed ready`, `sluice changefeed finalize`: the end of a migration."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.channel import Connection
from cli.command import ChangefeedArgument, OutputOption, YesOption, confirm, connected
from cli.groups import examples
from cli.output import ExitCode, Failure, Output, plain, print_document, print_line

_READINESS_SECONDS = 90.0


ReverseOption = Annotated[
    str,
    typer.Option(
        "--reverse-as", metavar="ID", help="The changefeed that then brings back what users write at the target."
    ),
]
BlockOption = Annotated[
    bool,
    typer.Option(
        "--block-writes",
        help="Block the writes of the source's users first (6.0 or later); they stay blocked. With a way back the target's users, too, until it runs.",
    ),
]


@examples(
    "sluice changefeed ready orders",
    "sluice changefeed ready orders --within 5",
    "sluice changefeed ready orders --reverse-as orders-back --block-writes",
)
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
    reverse_as: ReverseOption = "",
    block_writes: BlockOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell whether a cut-over would succeed now.

    Also how long it would take. The exit code is 0 if it would succeed, and 1 if not.
    """
    request = pb.GetReadinessRequest(
        id=id, leave_stopped=leave_stopped, reverse_as=reverse_as, block_writes=block_writes
    )
    request.within.FromTimedelta(timedelta(seconds=within))
    _tell_readiness(connection, request, output)


def _tell_readiness(connection: Connection, request: pb.GetReadinessRequest, output: Output) -> None:
    id = request.id
    found = connection.ask(connection.changefeeds.GetReadiness, request, timeout=_READINESS_SECONDS)
    if not output.for_people:
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
    if output.for_people:
        takes = found.takes.ToTimedelta().total_seconds()
        print_line(
            f"changefeed {id} is ready; its cut-over takes about {takes:.0f}s"
            if takes
            else f"changefeed {id} has finished"
        )


@examples(
    "sluice changefeed finalize orders --yes",
    "sluice changefeed finalize orders --block-writes",
    "sluice changefeed finalize orders --reverse-as orders-back --block-writes",
    "sluice changefeed finalize orders --give-up",
)
@connected
def finalize(
    connection: Connection,
    id: ChangefeedArgument,
    leave_stopped: Annotated[
        bool, typer.Option("--leave-stopped", help="Finish although tables are stopped; they stay as they are.")
    ] = False,
    block_writes: BlockOption = False,
    reverse_as: ReverseOption = "",
    give_up: Annotated[
        bool,
        typer.Option("--give-up", help="Take back a cut-over before its mark; after it, go on without a way back."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be in the way.")] = False,
    yes: YesOption = False,
) -> None:
    """Cut over: replicate all changes until now, and finish.

    The expiry of documents (TTL indexes) is restored at the target.

    Stop the writers at the source first, or have them blocked. After an interruption, run the command again.

    With --reverse-as a second changefeed brings back what users write at the target from then on, so that they can return: finalize that one.
    """
    if give_up and (reverse_as or block_writes or leave_stopped or dry_run):
        raise Failure(ExitCode.USAGE, "--give-up takes no other options")
    if reverse_as and leave_stopped:
        raise Failure(
            ExitCode.USAGE,
            "--leave-stopped: tables that are left behind could not come back; resume them, or leave --reverse-as out",
        )
    if dry_run:
        asked = pb.GetReadinessRequest(
            id=id, leave_stopped=leave_stopped, reverse_as=reverse_as, block_writes=block_writes
        )
        _tell_readiness(connection, asked, Output.TABLE)
        return
    feed = connection.ask(connection.changefeeds.GetChangefeed, pb.GetChangefeedRequest(id=id))
    if give_up:
        confirm(
            f"Give up the cut-over of changefeed {id}? It goes on, and users may write at the source. If the cut-over has reached its mark, only its "
            "way back is given up: users may write at the target, and cannot return.",
            yes=yes,
        )
    else:
        later = (
            "The source's users write no more." if block_writes else "Later writes at the source are not replicated."
        )
        confirm(f"Finish changefeed {id} ({cells.state(feed)}, lag {cells.seconds(feed)}) now? {later}", yes=yes)
    request = pb.FinalizeChangefeedRequest(
        id=id, leave_stopped=leave_stopped, block_writes=block_writes, reverse_as=reverse_as, give_up=give_up
    )
    blocked = False
    for progress in connection.stream(connection.changefeeds.FinalizeChangefeed, request):
        if progress.block_lifted_by and not progress.done:
            blocked = True
            print_line(
                f"the source's users write no more; an administrator lifts that at the source by {progress.block_lifted_by}"
            )
        elif not progress.done:
            left = progress.left.ToTimedelta().total_seconds()
            print_line(f"at {cells.position(progress.checkpoint)}, {left:.0f}s left")
        else:
            _tell_end(id, progress, unblocked=block_writes and not blocked and not reverse_as)
            return
    raise Failure(ExitCode.FAILED, "the server stopped before the changefeed was finished; run the command again")


def _tell_end(id: str, progress: pb.FinalizeProgress, *, unblocked: bool) -> None:
    if progress.given_up and progress.target:
        print_line(f"the way back of changefeed {id} is given up: users may write at the target, for good")
    elif progress.given_up:
        print_line(
            f"the cut-over of changefeed {id} is given up: it goes on"
            + ("" if progress.problems else ", and users may write at the source")
        )
    else:
        print_line(f"changefeed {id} finished at {progress.target}; expiries restored downstream: {progress.restored}")
    if unblocked:
        print_line("no writes were blocked: it had finished before this call")
    if progress.block_lifted:
        print_line("users may write at its target again")
    if progress.reverse:
        print_line(
            f"open: users may write at the target; changefeed {progress.reverse} brings it back from {cells.position(progress.starts)} on"
        )
        if progress.block_lifted_by:
            print_line(
                f"the source's users write no more, until `sluice changefeed finalize {progress.reverse}` has returned"
            )
    if progress.problems:
        raise Failure(ExitCode.FAILED, "not restored:", *(f"  - {problem}" for problem in progress.problems))
    if progress.foreign:
        raise Failure(
            ExitCode.FAILED,
            "others wrote meanwhile, which is in no changefeed; write it again at the target, or compare (sluice verify):",
            *(f"  - {each}" for each in progress.foreign),
        )
