"""`changefeeds`, `nodes`, `tables`: ids that the shell completes, as the server has them now.

A completion has no place for an error: without an answer within a second or two there is nothing to complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import typer

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.errors import SluiceError
from cli.connection import Connection, current_address
from cli.failure import Failure

_SECONDS = 2.0

Complete: TypeAlias = Callable[[typer.Context, str], list[str]]


def _completing(found: Callable[[Connection, dict[str, Any]], Iterable[str]]) -> Complete:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        flags = {name: ctx.params.get(name) for name in ("server", "token_file", "ca", "cert", "key")}
        try:
            with Connection(current_address(flags)) as connection:
                return sorted(each for each in found(connection, ctx.params) if each.startswith(incomplete))
        except (Failure, SluiceError):
            return []

    return complete


def _changefeeds(connection: Connection, _given: dict[str, Any]) -> Iterable[str]:
    answer = connection.ask(connection.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest(), timeout=_SECONDS)
    return [feed.id for feed in answer.changefeeds]


def _nodes(connection: Connection, _given: dict[str, Any]) -> Iterable[str]:
    answer = connection.ask(connection.nodes.ListNodes, pb.ListNodesRequest(), timeout=_SECONDS)
    return [node.id for node in answer.nodes]


def _tables(connection: Connection, given: dict[str, Any]) -> Iterable[str]:
    request = pb.ListTablesRequest(changefeed=str(given.get("id") or given.get("changefeed") or ""))
    return [table.name for table in connection.stream(connection.tables.ListTables, request, timeout=_SECONDS)]


changefeeds, nodes, tables = _completing(_changefeeds), _completing(_nodes), _completing(_tables)
