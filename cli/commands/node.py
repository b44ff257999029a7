"""`sluice node`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.printable import counted
from cli import cells
from cli.channel import Connection
from cli.command import (
    NodeArgument,
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
from cli.output import ExitCode, Failure, Output, print_line
from cli.tables import Column

_LOOK_EVERY = 0.3


def _answer(node: pb.Node, field: str, yes: str, no: str) -> str:
    return (yes if getattr(node, field) else no) if node.HasField(field) else "-"


def _last_error(node: pb.Node) -> str:
    """What NOT READY says is not said twice."""
    if not node.HasField("last_error") or node.last_error.message in node.not_ready:
        return ""
    feed = f"{node.last_error_changefeed}: " if node.last_error_changefeed else ""
    return f"{feed}{node.last_error.message}"


LISTED: Sequence[Column] = (
    Column("ID", lambda node: node.id),
    Column("OWNER", lambda node: "yes" if node.owner else ""),
    Column("TABLES", lambda node: f"{node.tables:,}", right=True),
    Column("LAG", cells.lag, right=True),
    Column("DRAINING", lambda node: "yes" if node.draining else "", text=True),
    Column("SPARK", lambda node: _answer(node, "spark", "runs", "does not run")),
    Column("ETCD", lambda node: _answer(node, "etcd_writable", "writable", "takes no writes"), optional=True),
    Column("SOURCE", lambda node: _answer(node, "source_reachable", "reached", "not reached")),
    Column("TARGET", lambda node: _answer(node, "target_reachable", "reached", "not reached")),
    Column("NOT READY", lambda node: node.not_ready, text=True),
    Column("ROLES", lambda node: ",".join(node.roles), optional=True),
    Column("ADDRESS", lambda node: cells.dash(node.admin_address), optional=True),
    Column("VERSION", lambda node: node.version, optional=True),
    Column("STARTED", lambda node: cells.moment(node, "started_at"), optional=True),
    Column("LAST ERROR", _last_error, text=True),
)


@examples("sluice node list", "sluice node list -o json")
@connected
def list_(connection: Connection, *, watch: WatchOption = False, output: OutputOption = Output.TABLE) -> None:
    """List the nodes, with what works and what does not.

    Whether their Spark runs, whether they reach sources and targets, and their last errors.
    """
    listed(lambda: _nodes(connection), LISTED, output, watch=watch, empty="no nodes")


@examples("sluice node drain n1 --yes", "sluice node drain n1 --yes --force")
@connected
def drain(
    connection: Connection,
    node: NodeArgument,
    wait: WaitOption = True,
    timeout: TimeoutOption = 120.0,
    yes: YesOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Drain it even if no other node takes tables; they then stay.")
    ] = False,
) -> None:
    """Move all tables away from a node.

    It gets no new ones until it is undrained or its process restarts.
    """
    found = _named(connection, node)
    confirm(f"Take {counted(found.tables, 'table')} from node {found.id}?", yes=yes)
    drained = connection.ask(connection.nodes.DrainNode, pb.DrainNodeRequest(id=node, force=force))
    deadline = time.monotonic() + timeout
    while wait and drained is not None and drained.tables:
        if time.monotonic() >= deadline:
            raise Failure(
                ExitCode.FAILED,
                f"node {drained.id} still has {counted(drained.tables, 'table')} after {timeout:g} s; the drain continues",
                "tables stay if no other node accepts tables; tables of a paused changefeed stay until it is resumed",
            )
        time.sleep(_LOOK_EVERY)
        drained = next((each for each in _nodes(connection) if each.id == drained.id), None)
    print_line(f"node {node} {'drained' if wait else 'is being drained'}")


@examples("sluice node undrain n1")
@connected
def undrain(connection: Connection, node: NodeArgument) -> None:
    """Let a drained node take tables again."""
    connection.ask(connection.nodes.UndrainNode, pb.UndrainNodeRequest(id=node))
    print_line(f"node {node} takes tables again")


@examples(
    "sluice node log-level", "sluice node log-level admin=debug owner.ddl=warning", "sluice node log-level admin="
)
@connected
def log_level(
    connection: Connection,
    levels: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODULE=LEVEL", help="debug, info, warning, error, or nothing to remove it; * is all others."
        ),
    ] = None,
) -> None:
    """Show or change what the node of --server logs.

    Until its process ends. A module, such as owner.ddl, stands for all below it. Spark's workers are other processes and stay as they are.
    """
    wanted = {}
    for text in levels or ():
        module, separator, level = text.partition("=")
        if not separator or not module:
            raise Failure(ExitCode.USAGE, f"found {text!r}; write MODULE=LEVEL, such as owner.ddl=debug")
        wanted["" if module == "*" else module] = level
    found = connection.ask(connection.nodes.SetLogLevels, pb.LogLevels(levels=wanted))
    for module, level in sorted(found.levels.items()):
        print_line(f"{module or '*'}={level}")


@examples("sluice node resign --yes")
@connected
def resign(connection: Connection, yes: YesOption = False) -> None:
    """Let another node be elected as the owner."""
    owner = next((node.id for node in _nodes(connection) if node.owner), "nobody")
    confirm(f"Elect another node as the owner? It is {owner}.", yes=yes)
    answer = connection.ask(connection.nodes.ResignOwner, pb.ResignOwnerRequest())
    print_line(f"{answer.former_owner} resigns")


def _named(connection: Connection, text: str) -> pb.Node:
    found = [node for node in _nodes(connection) if text in (node.id, node.name)]
    if not found:
        raise Failure(ExitCode.NOT_FOUND, f"there is no node {text!r}; `sluice node list` shows all nodes")
    return next((node for node in found if node.id == text), found[0])


def _nodes(connection: Connection) -> Sequence[pb.Node]:
    found: Sequence[pb.Node] = connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest()).nodes
    return found
