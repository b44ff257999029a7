"""The server that a command calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from admin import CODE_KEY
from changefeed.errors import ConflictError, CoordinationUnavailable, NotFoundError, SinkUnavailable, SluiceError
from cli.channel import Connection, ServerAddress
from cli.main import app
from cli.output import ExitCode, Failure


def test_a_flag_goes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "sluice" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("server: filed:1\nca: /filed/ca.pem\n")
    home = {"HOME": str(tmp_path)}
    both = home | {"SLUICE_SERVER": "environment:1"}
    assert ServerAddress.found({}, {}).server == "127.0.0.1:8300"
    assert ServerAddress.found({"server": None}, home).server == "filed:1"
    assert ServerAddress.found({"server": None}, both).server == "environment:1"
    assert ServerAddress.found({"server": "flag:1"}, both).server == "flag:1"
    assert ServerAddress.found({"server": "flag:1"}, both).ca == Path("/filed/ca.pem")


def test_a_context_names_a_server_and_its_files_by_flag_variable_or_choice(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("ca: /ca.pem\ncontext: test\ncontexts: {prod: {server: p:1, ca: /p.pem}, test: {server: t:1}}\n")
    there = {"SLUICE_CONFIG": str(file)}
    assert ServerAddress.found({}, there) == ServerAddress(server="t:1", ca=Path("/ca.pem"))
    prod = ServerAddress(server="p:1", ca=Path("/p.pem"))
    assert ServerAddress.found({"context": "prod"}, there) == prod
    assert ServerAddress.found({"context": None}, there | {"SLUICE_CONTEXT": "prod"}) == prod
    with pytest.raises(Failure, match="there is no context 'dev'; it has prod, test"):
        ServerAddress.found({"context": "dev"}, there)
    chosen = CliRunner().invoke(app, ["context", "use", "prod"], env=there)
    assert chosen.exit_code == 0, chosen.output
    assert ServerAddress.found({}, there) == prod
    assert CliRunner().invoke(app, ["context", "list"], env=there).stdout == "* prod  p:1\n  test  t:1\n"
    assert CliRunner().invoke(app, ["context", "use", "dev"], env=there).exit_code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ("n1", "n1:8300"),
        ("n1:9", "n1:9"),
        ("[::1]", "[::1]:8300"),
        ("[::1]:9", "[::1]:9"),
        ("10.0.0.7", "10.0.0.7:8300"),
    ],
)
def test_a_server_without_a_port_has_the_usual_one(text: str, server: str) -> None:
    assert ServerAddress.found({"server": text}, {}).server == server


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http://n1:8300/", "write n1:8300 without http://"),
        ("https://n1:8300", "write n1:8300 without https://, and the CA of its certificate with --ca"),
        ("n1:http", "write HOST:PORT"),
    ],
)
def test_a_server_that_is_no_host_and_port_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(Failure, match="--server: found") as failed:
        ServerAddress.found({"server": text}, {})
    assert (failed.value.exit_code, told in str(failed.value)) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("files", [{"cert": Path("c")}, {"key": Path("k")}, {"cert": Path("c"), "key": Path("k")}])
def test_a_client_certificate_is_not_passed_over_where_there_is_no_tls(files: dict[str, Any]) -> None:
    with pytest.raises(Failure, match="--cert and --key need TLS; give --ca as well") as failed:
        Connection(ServerAddress(**files))
    assert failed.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("line", ["0123456789abcdef", "viewer:0123456789abcdef", "operator:0123456789abcdef\n"])
def test_a_token_is_sent_without_its_role(line: str, tmp_path: Path) -> None:
    """The file may be a line of the server's own."""
    file = tmp_path / "token"
    file.write_text(line)
    with Connection(ServerAddress(token_file=file)) as connection:
        assert connection.metadata == (("authorization", "Bearer 0123456789abcdef"),)


class _Refused(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """As a stub raises it."""

    def __init__(self, status: grpc.StatusCode, error: type[SluiceError]) -> None:
        self._status = status
        self._error = error

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return "it is refused"

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return ((CODE_KEY, self._error.code),)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (grpc.StatusCode.ABORTED, ConflictError, ExitCode.CONFLICT),
        (grpc.StatusCode.NOT_FOUND, NotFoundError, ExitCode.NOT_FOUND),
        (grpc.StatusCode.UNAVAILABLE, CoordinationUnavailable, ExitCode.UNREACHABLE),
        (grpc.StatusCode.UNAVAILABLE, SinkUnavailable, ExitCode.FAILED),
    ],
)
def test_a_script_tells_failures_apart_by_their_exit_codes(
    status: grpc.StatusCode, error: type[SluiceError], expected: ExitCode
) -> None:
    with Connection(ServerAddress()) as connection:
        with pytest.raises(Failure, match="it is refused") as failed, connection.translated():
            raise _Refused(status, error)
        assert failed.value.exit_code is expected
