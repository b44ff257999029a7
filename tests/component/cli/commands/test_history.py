"""Who did what to a changefeed, and waiting for what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.component.node.server_process import Server
from tests.until import until

_MARIA, _VIEWER = "m" * 32, "v" * 32


@pytest.fixture(scope="module")
def guarded(etcd_endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("guarded")
    tokens = directory / "tokens"
    tokens.write_text(f"maria:operator:{_MARIA}\ndashboard:viewer:{_VIEWER}\n")
    with Server(etcd_endpoint, directory / "log", "--token-file", str(tokens)) as server:
        yield server


@pytest.fixture
def maria(guarded: Server, tmp_path: Path) -> list[str]:
    token = tmp_path / "maria"
    token.write_text(_MARIA)
    return ["--token-file", str(token)]


def _told(server: Server, feed: str, flags: list[str], *more: str) -> list[dict[str, str]]:
    shown = server.sluice("changefeed", "history", feed, "-o", "json", *more, *flags)
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, str]] = json.loads(shown.stdout)
    return found


def test_the_history_says_who_changed_a_changefeed_and_outlives_it(
    guarded: Server, maria: list[str], database: str, source_uri: str
) -> None:
    flags = ("--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*", "--start", "now")
    for verb in (["create", "--id", database, *flags], ["pause", database], ["resume", database]):
        done = guarded.sluice("changefeed", *verb, *maria)
        assert done.returncode == 0, done.stderr

    told = _told(guarded, database, maria)
    changes = [entry for entry in told if entry["kind"] == "change"]
    assert [(entry["action"], entry["by"], entry["role"], entry["address"]) for entry in changes] == [
        ("create", "maria", "operator", "127.0.0.1"),
        ("pause", "maria", "operator", "127.0.0.1"),
        ("resume", "maria", "operator", "127.0.0.1"),
    ]
    states = [(entry["before"], entry["after"]) for entry in told if entry["kind"] == "state"]
    assert ("normal", "stopped") in states
    assert ("stopped", "normal") in states

    assert guarded.sluice("changefeed", "remove", database, "--yes", *maria).returncode == 0
    assert [entry["action"] for entry in _told(guarded, database, maria, "--changes")] == [
        *("create", "pause", "resume", "remove")
    ]
    lines = [json.loads(line) for line in guarded.log.splitlines() if '"audit"' in line]
    assert [(line["action"], line["by"]) for line in lines if line.get("changefeed") == database][-1] == (
        "remove",
        "maria",
    )


def test_a_changefeed_that_never_was_has_no_history(guarded: Server, maria: list[str]) -> None:
    assert guarded.sluice("changefeed", "history", "nobodys", *maria).returncode == 3


def test_a_second_changefeed_of_a_name_is_refused_for_its_name(server: Server, database: str, source_uri: str) -> None:
    """Whatever else would be wrong with it."""
    flags = ("--id", database, "--source", source_uri, "--tables", f"{database}.*", "--start", "now")
    assert server.sluice("changefeed", "create", *flags, "--sink", "blackhole://").returncode == 0
    try:
        for verb in (["create"], ["validate"]):
            again = server.sluice("changefeed", *verb, *flags, "--sink", "mongodb://127.0.0.1:1")
            assert (again.returncode, "exists already" in again.stderr) == (4, True), again.stderr
    finally:
        server.sluice("changefeed", "remove", database, "--yes")


def test_a_script_waits_for_a_state_and_is_told_when_it_cannot_come(
    server: Server, database: str, source_uri: str
) -> None:
    flags = ("--source", source_uri, "--sink", "blackhole://", "--tables", f"{database}.*", "--start", "now")
    assert server.sluice("changefeed", "create", "--id", database, *flags).returncode == 0
    try:
        assert server.sluice("changefeed", "wait", database, "--for", "state=normal").returncode == 0
        late = server.sluice("changefeed", "wait", database, "--for", "state=finished", "--timeout", "1")
        assert (late.returncode, "is not finished after 1 s: it is normal\n" in late.stderr) == (1, True), late.stderr
        assert server.sluice("changefeed", "pause", database).returncode == 0
        never = server.sluice("changefeed", "wait", database, "--for", "caught-up")
        assert (never.returncode, "is stopped, and caught-up is not reached" in never.stderr) == (1, True)
        wrong = server.sluice("changefeed", "wait", database, "--for", "happy")
        assert (wrong.returncode, "write ready, caught-up or state=STATE" in wrong.stderr) == (2, True)
    finally:
        server.sluice("changefeed", "remove", database, "--yes")
    until(lambda: server.sluice("changefeed", "wait", database, "--for", "caught-up").returncode == 3)
