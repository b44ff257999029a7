"""What a command says and does when its output, its certificates or its terminal are not what it needs."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.channel import Connection, ServerAddress
from cli.output import ExitCode, Failure
from devstack.mongodb.server import Client
from tests.certificates import Certificates
from tests.component.node.server_process import Server
from tests.until import PATIENCE_SECONDS
from tests.zygote import SLUICE


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of another CA."""
    return Certificates(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module")
def secured(
    etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Server]:
    """Requires a client certificate."""
    cert, key = map(str, certificates.issue("server"))
    flags = ("--admin-cert", cert, "--admin-key", key, "--admin-client-ca", str(certificates.ca))
    with Server(etcd_endpoint, tmp_path_factory.mktemp("secured") / "log", *flags) as server:
        yield server


Flags: TypeAlias = dict[str, Path]
_REFUSALS: dict[str, tuple[Callable[[Certificates, Certificates], Flags], str]] = {
    "no TLS": (lambda ours, theirs: {}, "it speaks TLS; give the CA of its certificate with --ca"),
    "another CA": (lambda ours, theirs: {"ca": theirs.ca}, "the CA of --ca has not signed it"),
    "no client certificate": (
        lambda ours, theirs: {"ca": ours.ca},
        "the server requires a client certificate; give --cert and --key",
    ),
    "a client certificate of another CA": (
        lambda ours, theirs: {"ca": ours.ca, **_client(theirs, "stranger")},
        "the server refuses the client certificate of --cert, since it does not know the CA",
    ),
    "an expired client certificate": (
        lambda ours, theirs: {"ca": ours.ca, **_client(ours, "expired", days=-1)},
        "the client certificate of --cert has expired",
    ),
    "a key of another certificate": (
        lambda ours, theirs: {"ca": ours.ca, "cert": ours.issue("one")[0], "key": ours.issue("two")[1]},
        "the files of --ca, --cert and --key do not fit",
    ),
}


def _client(of: Certificates, name: str, *, days: int = 2) -> Flags:
    cert, key = of.issue(name, days=days)
    return {"cert": cert, "key": key}


def _failure(server: str, flags: Flags) -> str:
    with pytest.raises(Failure) as refused, Connection(ServerAddress(server=server, **flags)) as api:
        api.ask(api.nodes.ListNodes, pb.ListNodesRequest())
    assert refused.value.exit_code is ExitCode.UNREACHABLE
    return str(refused.value)


@pytest.mark.parametrize("case", _REFUSALS)
def test_a_refusal_by_tls_says_what_was_refused(
    secured: Server, certificates: Certificates, strangers: Certificates, case: str
) -> None:
    flags, told = _REFUSALS[case]

    failure = _failure(secured.address, flags(certificates, strangers))

    assert failure.startswith(f"no connection to the server at {secured.address}: ")
    assert told in failure


@pytest.mark.parametrize(
    ("days", "names", "told"),
    [
        (-1, "IP:127.0.0.1", "it has expired; renew it"),
        (2, "DNS:sluice.example", "it is not for this address; call the server by a name that its certificate has"),
    ],
)
def test_a_servers_certificate_that_is_refused_is_told_with_the_reason(
    certificates: Certificates, days: int, names: str, told: str
) -> None:
    cert, key = (path.read_bytes() for path in certificates.issue("wrong", days=days, names=names))
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    server.start()
    try:
        assert told in _failure(f"127.0.0.1:{port}", {"ca": certificates.ca})
    finally:
        server.stop(0)


def test_a_server_without_tls_is_told_from_one_that_is_not_there(server: Server, certificates: Certificates) -> None:
    assert "does not speak TLS; leave --ca out" in _failure(server.address, {"ca": certificates.ca})
    for flags in ({}, {"ca": certificates.ca}):
        assert "does not answer" in _failure("127.0.0.1:1", flags)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["version"], "> /dev/full"),
        (["version"], ">&-"),
        (["--help"], "> /dev/full"),
        (["--help"], "| head -n 0"),
        (["node", "list"], "> /dev/full"),
        (["node", "list", "-o", "yaml"], "| head -n 0"),
    ],
)
def test_an_output_that_takes_nothing_ends_without_a_traceback(
    server: Server, arguments: list[str], output: str
) -> None:
    command = f"{SLUICE} {' '.join(arguments)} {output}"
    environment = {**os.environ, "SLUICE_SERVER": server.address}
    run = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )

    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    if "|" not in output:
        assert run.returncode == 1
        assert run.stderr.startswith("sluice: standard output takes nothing more: ")


def test_a_full_disk_below_the_errors_leaves_the_exit_code(server: Server) -> None:
    command = f"{SLUICE} changefeed query nothing 2> /dev/full"
    environment = {**os.environ, "SLUICE_SERVER": server.address}
    assert (
        subprocess.run(["bash", "-c", command], env=environment, timeout=PATIENCE_SECONDS, check=False).returncode == 3
    )


@pytest.fixture
def feed(server: Server, database: str, source_uri: str) -> Iterator[str]:
    flags = ("--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*", "--start", "now")
    created = server.sluice("changefeed", "create", "--id", database, *flags)
    assert created.returncode == 0, created.stderr
    yield database
    server.sluice("changefeed", "remove", database, "--yes")


def test_watch_draws_in_place_on_a_terminal(server: Server, feed: str) -> None:
    primary, secondary = pty.openpty()
    watching = subprocess.Popen(
        [str(SLUICE), "changefeed", "watch", feed],
        env={**os.environ, "SLUICE_SERVER": server.address, "TERM": "xterm", "COLUMNS": "120", "LINES": "50"},
        stdout=secondary,
        stderr=secondary,
        stdin=secondary,
    )
    os.close(secondary)
    try:
        _shown(primary, "normal")
        server.sluice("changefeed", "pause", feed)
        drawn = _shown(primary, "stopped")
    finally:
        watching.kill()
        watching.wait()
        os.close(primary)
    assert re.search(r"\x1b\[\d*A", drawn), "the cursor does not go up"
    assert feed in drawn


def _shown(terminal: int, text: str) -> str:
    """What the terminal gets until it shows the text."""
    shown, deadline = "", time.monotonic() + PATIENCE_SECONDS
    while text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1.0)[0]:
            shown += os.read(terminal, 65_536).decode(errors="replace")
    return shown


def test_watch_prints_lines_into_a_pipe(server: Server, feed: str) -> None:
    environment = {**os.environ, "SLUICE_SERVER": server.address}
    watching = subprocess.Popen([str(SLUICE), "changefeed", "watch", feed], env=environment, stdout=subprocess.PIPE)
    assert watching.stdout is not None
    first = watching.stdout.readline().decode()
    watching.kill()
    watching.wait()
    watching.stdout.close()
    assert "checkpoint" in first
    assert "\x1b" not in first


def _completed(server: Server, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(["sluice", *words])
    environment = {
        **os.environ,
        "SLUICE_SERVER": server.address,
        "_SLUICE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
    }
    run = subprocess.run(
        [str(SLUICE)], env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    return run.stdout.split()


def test_ids_are_completed_by_the_shell(server: Server, feed: str) -> None:
    assert feed in _completed(server, "changefeed", "query", feed[:4])
    assert feed in _completed(server, "verify", feed[:4])
    assert _completed(server, "changefeed", "query", "no-such-") == []
    [node] = _completed(server, "node", "drain", "n1")
    assert node.startswith("n1-")


def test_tables_of_the_named_changefeed_are_completed(
    server: Server, database: str, source_uri: str, source_client: Client
) -> None:
    source_client[database]["orders"].insert_one({})
    flags = ("--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*", "--start", "now")
    created = server.sluice("changefeed", "create", "--id", database, *flags)
    assert created.returncode == 0, created.stderr
    try:
        assert _completed(server, "table", "stop", database, database[:4]) == [f"{database}.orders"]
        assert _completed(server, "table", "stop", "no-such", "a") == []
    finally:
        server.sluice("changefeed", "remove", database, "--yes")


def test_without_a_server_there_is_nothing_to_complete(server: Server) -> None:
    assert _completed(server, "--server", "127.0.0.1:1") is not None
    assert _completed(server, "changefeed", "query", "--server", "127.0.0.1:1", "a") == []
