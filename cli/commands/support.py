"""`sluice support-bundle`: what somebody who helps needs to see, in one file, without secrets."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

import typer
from google.protobuf.message import Message

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.channel import Connection
from cli.command import connected
from cli.groups import examples
from cli.output import ExitCode, Failure, plain, print_line, print_warnings

T = TypeVar("T")
File: TypeAlias = tuple[str, bytes]

_SECONDS = 30.0
_MOST_TABLES = 1_000


@examples("sluice support-bundle", "sluice support-bundle --to case-7.tar.gz --profile 10")
@connected
def support_bundle(
    connection: Connection,
    to: Annotated[Path | None, typer.Option(help="The file; default: a name with the time.")] = None,
    profile: Annotated[
        float, typer.Option(min=0, max=300, metavar="SECONDS", help="Also see for so long what each node does.")
    ] = 0,
) -> None:
    """Collect what is needed to find a fault, in one file.

    Of each node the version, configuration, metrics, newest log lines and where its threads stand; of each changefeed its state,
    history, schema changes and the tables that do not follow. Passwords and rows are not in it; names of hosts and tables are.
    """
    at = datetime.now(UTC)
    path = to or Path(f"sluice-support-{at:%Y%m%dT%H%M%SZ}.tar.gz")
    missing: list[str] = []
    try:
        with tarfile.open(path, "w:gz") as bundle:
            for name, content in _files(connection, timedelta(seconds=profile), missing):
                entry = tarfile.TarInfo(f"{path.name.partition('.')[0]}/{name}")
                entry.size, entry.mtime = len(content), at.timestamp()
                bundle.addfile(entry, io.BytesIO(content))
    except OSError as error:
        raise Failure(ExitCode.FAILED, f"{path}: cannot be written: {error.strerror}") from None
    print_warnings(missing)
    print_line(f"wrote {path}; look through it before you pass it on")


def _files(connection: Connection, profile: timedelta, missing: list[str]) -> Iterator[File]:
    """What cannot be had is missing, and told: a bundle is made when something is wrong."""

    def had(name: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Failure as failure:
            missing.append(f"{name} is missing: {failure.lines[0]}")
            return otherwise

    def asked(method: Any, request: Message) -> Callable[[], Any]:
        return partial(connection.ask, method, request, timeout=_SECONDS)

    yield "client.txt", f"sluice {version('sluice')} at {datetime.now(UTC).isoformat()}\n".encode()
    cluster = had("the cluster", asked(connection.cluster.GetCluster, pb.GetClusterRequest()), pb.Cluster())
    nodes = had("the list of nodes", asked(connection.nodes.ListNodes, pb.ListNodesRequest()), pb.ListNodesResponse())
    request = pb.ListChangefeedsRequest()
    feeds = had(
        "the list of changefeeds", asked(connection.changefeeds.ListChangefeeds, request), pb.ListChangefeedsResponse()
    )
    yield from map(_json, ("cluster", "nodes", "changefeeds"), ([cluster], nodes.nodes, feeds.changefeeds))
    for feed in feeds.changefeeds:
        yield from had(f"changefeed {feed.id}", partial(_of_changefeed, connection, feed.id), list[File]())
    addresses = {node.id: node.admin_address for node in nodes.nodes} or {"asked": connection.address.server}
    for node, address in addresses.items():
        yield from had(f"node {node}", partial(_of_node, connection, node, address, profile), list[File]())
    yield "missing.txt", "".join(f"{each}\n" for each in missing).encode()


def _of_changefeed(connection: Connection, id: str) -> list[File]:
    asked = partial(connection.stream, timeout=_SECONDS)
    history = asked(connection.changefeeds.ListHistory, pb.ListHistoryRequest(changefeed=id))
    ddls = asked(connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=id))
    tables = connection.tables_of(id, timeout=_SECONDS)
    special = [table for table in tables if table.state != "following"][:_MOST_TABLES]
    names = (f"changefeeds/{id}/{name}" for name in ("history", "ddl", "tables-that-do-not-follow"))
    return list(map(_json, names, (history, ddls, special)))


def _of_node(connection: Connection, node: str, at: str, profile: timedelta) -> list[File]:
    """On Kubernetes all nodes have one certificate, with the name of their Service, by which the user called."""
    address, (host, _, _) = replace(connection.address, server=at), connection.address.server.rpartition(":")
    try:
        contents = _diagnosed(Connection(address), profile)
    except Failure as failure:
        if failure.exit_code is not ExitCode.UNREACHABLE or address.ca is None:
            raise
        contents = _diagnosed(Connection(address, certified=host.strip("[]")), profile)
    return [(f"nodes/{node}/{name}", content) for name, content in contents.items()]


def _diagnosed(connection: Connection, profile: timedelta) -> dict[str, bytes]:
    request, contents = pb.DiagnoseRequest(profile=profile or None), dict[str, bytes]()
    with connection:
        for part in connection.stream(connection.nodes.Diagnose, request, timeout=_SECONDS + profile.total_seconds()):
            contents[part.name] = contents.get(part.name, b"") + part.content
    return contents


def _json(name: str, messages: Iterable[Message]) -> File:
    return f"{name}.json", json.dumps([plain(each) for each in messages], indent=1, ensure_ascii=False).encode()
