"""What a script learns from the exit code of `sluice verify`, and from a command that would ask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from admin.stubs.sluice.admin.v1 import verify_pb2 as pb
from cli import command
from cli.command import confirm
from cli.commands.verify import verify
from cli.output import ExitCode, Failure, Output

TABLE = pb.VerifyEvent(table=pb.TableVerification(name="shop.a", outcome=pb.VERIFY_OUTCOME_DIFFERENT))
EQUAL = pb.VerifyEvent(summary=pb.VerifySummary(succeeded=True, outcome=pb.VERIFY_OUTCOME_EQUAL, tables=1, documents=3))
DIFFERENT = pb.VerifyEvent(
    summary=pb.VerifySummary(succeeded=False, outcome=pb.VERIFY_OUTCOME_DIFFERENT, tables=1, documents=3)
)


def exit_code(events: Iterable[pb.VerifyEvent], monkeypatch: pytest.MonkeyPatch, **wishes: Any) -> int:
    """Of the command, with a server that sends these events."""

    @contextmanager
    def connection(_: object) -> Iterator[SimpleNamespace]:
        stubs = SimpleNamespace(VerifyChangefeed=None)
        yield SimpleNamespace(stream=lambda *_: iter(events), verifications=stubs)

    monkeypatch.setattr(command, "Connection", connection)
    given = {
        "tables": None,
        "max_differences": 20,
        "parallelism": 4,
        "ignore_field_order": False,
        "repair": False,
        "show": False,
    }
    flags: dict[str, Any] = dict.fromkeys(("server", "context", "token_file", "ca", "cert", "key"))
    try:
        verify(**{"changefeed": "f", "output": Output.TABLE, **given, **flags, **wishes})
    except SystemExit as ended:
        return int(str(ended.code))
    return 0


@pytest.mark.parametrize("output", list(Output))
def test_what_is_equal_is_a_success_and_what_differs_a_failure(
    output: Output, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code([EQUAL], monkeypatch, output=output) == 0
    assert exit_code([TABLE, DIFFERENT], monkeypatch, output=output) == ExitCode.FAILED
    assert exit_code([DIFFERENT], monkeypatch, output=output) == ExitCode.FAILED
    assert "shop.a" in capsys.readouterr().out


def test_a_comparison_that_the_server_ended_early_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code([TABLE], monkeypatch) == ExitCode.UNREACHABLE
    assert exit_code([], monkeypatch) == ExitCode.UNREACHABLE


def test_a_pattern_that_no_table_has_is_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code([EQUAL], monkeypatch, tables=["shop.z"]) == ExitCode.NOT_FOUND


def test_a_command_without_a_terminal_takes_nothing_for_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: False, raising=False)  # type: ignore[attr-defined]
    confirm("Remove it?", yes=True)
    with pytest.raises(Failure, match="no terminal to ask on; confirm with --yes") as failed:
        confirm("Remove it?", yes=False)
    assert failed.value.exit_code is ExitCode.USAGE
