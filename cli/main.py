"""`sluice`: the command line."""

from __future__ import annotations

import errno
import gc
import os
import sys
from contextlib import suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from cli.groups import HELP_FLAGS, Branch, CommandGroup, Leaf, Members

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
"""gRPC would write what fails to standard error, in a form of its own, beside the error that a command tells."""

_NOT_WRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})

COMMANDS: Members = {
    "changefeed": Branch(
        "Create, show and control changefeeds.",
        {
            "create": Leaf("configured", "create", "Create a changefeed, from a file or from flags."),
            "list": Leaf("changefeed", "list_", "List all changefeeds with their state and lag."),
            "query": Leaf("changefeed", "query", "Show everything about changefeeds."),
            "watch": Leaf("changefeed", "watch", "Show a changefeed after each change, until Ctrl-C."),
            "wait": Leaf("changefeed", "wait", "Wait until a changefeed has caught up, or has a state."),
            "history": Leaf("changefeed", "history", "Show who changed a changefeed, its states and schema changes."),
            "pause": Leaf("changefeed", "pause", "Stop replicating; resume continues at the same position."),
            "resume": Leaf("changefeed", "resume", "Resume changefeeds that are paused, failed or finished."),
            "sync-points": Leaf("sync_points", "sync_points", "List the points at which source and target are equal."),
            "sync-now": Leaf("sync_points", "sync_now", "Make a sync point at the next whole second."),
            "update": Leaf("configured", "update", "Change options of a changefeed, or replace its configuration."),
            "remove": Leaf("changefeed", "remove", "Remove changefeeds; the replicated data stays at the target."),
            "validate": Leaf("configured", "validate", "Show what create would do, and all problems; change nothing."),
            "ensure": Leaf("ensure", "ensure", "Create the changefeeds that are missing."),
            "export": Leaf("configured", "export", "Print the configuration of a changefeed, for create and update."),
            "options": Leaf("configured", "options", "List the options, and when each can be changed."),
            "ready": Leaf("cut_over", "ready", "Tell whether a cut-over would succeed now."),
            "finalize": Leaf("cut_over", "finalize", "Cut over: replicate all changes until now, and finish."),
        },
    ),
    "table": Branch(
        "List, move, stop, resume and copy tables; handle rows that the target rejects.",
        {
            "list": Leaf("table", "list_", "List the tables of a changefeed with their nodes and progress."),
            "move": Leaf("table", "move", "Move a table to another node."),
            "stop": Leaf("table", "stop", "Stop tables where they stand; the others go on."),
            "resume": Leaf("table", "resume", "Resume stopped tables, and try their refused schema changes again."),
            "recopy": Leaf("table", "recopy", "Copy tables again while the changefeed runs."),
            "rejected": Leaf("rejected", "rejected", "List the rows that the target rejects, and why."),
            "retry-rejected": Leaf("rejected", "retry_rejected", "Write rejected rows again."),
            "drop-rejected": Leaf("rejected", "drop_rejected", "Forget rejected rows."),
        },
    ),
    "ddl": Branch(
        "List schema changes; skip one that the target refuses.",
        {
            "list": Leaf("table", "list_ddl", "List schema changes, the newest last."),
            "skip": Leaf("table", "skip", "Continue without a schema change that the target refuses."),
        },
    ),
    "node": Branch(
        "List nodes with their health; drain one; change the owner.",
        {
            "list": Leaf("node", "list_", "List the nodes, with what works and what does not."),
            "drain": Leaf("node", "drain", "Move all tables away from a node."),
            "undrain": Leaf("node", "undrain", "Let a drained node take tables again."),
            "log-level": Leaf("node", "log_level", "Show or change what the node of --server logs."),
            "resign": Leaf("node", "resign", "Let another node be elected as the owner."),
        },
    ),
    "verify": Leaf("verify", "verify", "Compare source and target, and repair rows that differ."),
    "read": Leaf("messages", "read", "Show the messages of a changefeed from its files."),
    "consume": Leaf("messages", "consume", "Show the messages of a changefeed from its Kafka topics."),
    "sink": Branch(
        "Show where a changefeed can write to.",
        {"list": Leaf("sink", "list_", "List the kinds of sinks and the options of their URIs.")},
    ),
    "context": Branch(
        "Choose the cluster that commands speak to.",
        {
            "list": Leaf("context", "list_", "List the contexts of the configuration file."),
            "use": Leaf("context", "use", "Choose the context that commands use from now on."),
        },
    ),
    "support-bundle": Leaf("support", "support_bundle", "Collect what is needed to find a fault, in one file."),
    "server": Leaf("server", "server", "Run a node."),
    "dev": Branch(
        "Try Sluice on this machine.",
        {
            "up": Leaf("dev", "up", "Start a complete setup on this machine, until Ctrl-C."),
            "demo": Leaf("dev", "demo", "Replicate a small shop whose schema changes."),
        },
    ),
    "version": Leaf("about", "version", "Show the version of this program."),
    "help": Leaf("about", "help_", "Show the help of a command."),
}


class _Root(CommandGroup):
    examples = ("sluice server --etcd 127.0.0.1:2379", "sluice changefeed create orders.yaml", "sluice changefeed list")

    def __init__(self, **settings: object) -> None:
        form = {"options_metavar": "[OPTIONS]", "subcommand_metavar": "COMMAND", "context_settings": HELP_FLAGS}
        super().__init__(COMMANDS, **{**settings, **form})


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Replicate MongoDB into other systems, with schema changes in exact order.",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - reads the metadata of packages, which takes time

        typer.echo(version("sluice"))
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version of this program.")
    ] = False,
) -> None:
    """The options before the command."""


def main() -> None:
    """A standard output that takes nothing more, as that of a full disk, is a failure like any other."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - as long as the process; refuses what is written
    gc.disable()  # what is loaded stays: a command's module, once loaded, enables it again
    try:
        app(prog_name="sluice")
    except OSError as error:
        if not (error.errno in _NOT_WRITTEN or isinstance(error, UnsupportedOperation)):
            raise
        _leave_unwritten(error)
    finally:
        _give_up_unwritten()
        gc.freeze()  # the interpreter would look through all that is loaded before it ends


def _give_up_unwritten() -> None:
    """What an output did not take, Python would write again when it exits, with a traceback and an exit code of its own."""
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


def _leave_unwritten(error: OSError) -> NoReturn:
    why = error.strerror or "it is closed"
    with suppress(OSError):
        typer.echo(f"sluice: standard output takes nothing more: {why}", err=True)
    raise SystemExit(1)
