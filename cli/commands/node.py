"""`sluice node`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells, command
from cli.channel import Connection
from cli.command import Commands, OutputOption, TimeoutOption, WaitOption, YesOption, confirm, connected
from cli.output import Column, ExitCode, Failure, Output, print_line, print_messages

app = Commands(help="List nodes with their health, drain one, change the owner.")

_LOOK_EVERY = 0.3


def _answer(node: pb.Node, field: str, yes: str, no: str) -> str:
    return (yes if getattr(node, field) else no) if node.HasField(field) else "-"


def _last_error(node: pb.Node) -> str:
    """What NOT READY says is not said twice."""
    if not node.HasField("last_error") or node.last_error.message in node.not_ready:
        return ""
    feed = f"{node.last_error_changefeed}: " if node.last_error_changefeed else ""
    return f"{feed}{node.last_error.message}"


_LISTED: Sequence[Column] = (
    Column("ID", lambda node: node.id),
    Column("ROLES", lambda node: ",".join(node.roles)),
    Column("OWNER", lambda node: "yes" if node.owner else ""),
    Column("TABLES", lambda node: f"{node.tables:,}", right=True),
    Column("LAG", cells.lag, right=True),
    Column("DRAINING", lambda node: "yes" if node.draining else ""),
    Column("SPARK", lambda node: _answer(node, "spark", "runs", "does not run")),
    Column("ETCD", lambda node: _answer(node, "etcd_writable", "writable", "takes no writes"), optional=True),
    Column("SOURCE", lambda node: _answer(node, "source_reachable", "reached", "not reached")),
    Column("TARGET", lambda node: _answer(node, "target_reachable", "reached", "not reached")),
    Column("NOT READY", lambda node: node.not_ready, rigid=False),
    Column("ADDRESS", lambda node: cells.dash(node.admin_address), optional=True),
    Column("VERSION", lambda node: node.version, optional=True),
    Column("STARTED", lambda node: cells.moment(node, "started_at"), optional=True),
    Column("LAST ERROR", _last_error, rigid=False),
)


@app.command("list", epilog="sluice node list\n\nsluice node list -o json")
@connected
def list_(connection: Connection, output: OutputOption = Output.TABLE) -> None:
    """List the live nodes: whether their Spark runs, whether they reach the sources and targets, and their last errors."""
    print_messages(_nodes(connection), _LISTED, output, empty="no nodes")


@app.command(epilog="sluice node drain n1 --yes\n\nsluice node drain n1 --yes --force")
@connected
def drain(
    connection: Connection,
    node: Annotated[str, typer.Argument(help="Id or name of a node.", metavar="NODE", autocompletion=command.nodes)],
    wait: WaitOption = True,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Although no other node takes tables; they stay where they are.")
    ] = False,
) -> None:
    """Move all tables away from a node; it gets no new ones until it is undrained or its process restarts."""
    confirm(f"Take all tables from node {node}?", yes=yes)
    drained = connection.ask(connection.nodes.DrainNode, pb.DrainNodeRequest(id=node, force=force))
    deadline = time.monotonic() + timeout
    while wait and drained is not None and drained.tables:
        if time.monotonic() >= deadline:
            raise Failure(
                ExitCode.FAILED,
                f"node {drained.id} still has {drained.tables} tables after {timeout:g} s; the drain continues",
                "tables stay if no other node accepts tables; tables of a paused changefeed stay until it is resumed",
            )
        time.sleep(_LOOK_EVERY)
        drained = next((each for each in _nodes(connection) if each.id == drained.id), None)
    print_line(f"node {node} {'drained' if wait else 'is being drained'}")


@app.command(epilog="sluice node undrain n1")
@connected
def undrain(
    connection: Connection,
    node: Annotated[str, typer.Argument(help="Id or name of a node.", metavar="NODE", autocompletion=command.nodes)],
) -> None:
    """Let a drained node take tables again."""
    connection.ask(connection.nodes.UndrainNode, pb.UndrainNodeRequest(id=node))
    print_line(f"node {node} takes tables again")


@app.command(epilog="sluice node resign --yes")
@connected
def resign(connection: Connection, yes: YesOption = False) -> None:
    """Stop the owner gracefully, so that another node is elected."""
    confirm("Elect another node as the owner?", yes=yes)
    answer = connection.ask(connection.nodes.ResignOwner, pb.ResignOwnerRequest())
    print_line(f"{answer.former_owner} resigns")


def _nodes(connection: Connection) -> Sequence[pb.Node]:
    found: Sequence[pb.Node] = connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest()).nodes
    return found
