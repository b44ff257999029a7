"""Requests that the server refuses: the message, and the exit code for scripts."""

from __future__ import annotations

import pytest

from tests.component.node.server_process import Server, run

_NOT_FOUND = [
    (["changefeed", "query", "nope"], "there is no changefeed 'nope'; `sluice changefeed list` shows all changefeeds"),
    (["changefeed", "pause", "nope"], "there is no changefeed 'nope'"),
    (["changefeed", "resume", "nope"], "there is no changefeed 'nope'"),
    (["changefeed", "resume", "nope", "--start", "now"], "there is no changefeed 'nope'"),
    (["changefeed", "remove", "nope"], "there is no changefeed 'nope'"),
    (["changefeed", "watch", "nope"], "there is no changefeed 'nope'"),
    (["changefeed", "finalize", "nope"], "there is no changefeed 'nope'"),
    (["table", "list", "nope"], "there is no changefeed 'nope'"),
    (["table", "move", "nope", "shop.orders", "n1"], "there is no changefeed 'nope'"),
    (["table", "recopy", "nope", "shop.orders"], "there is no changefeed 'nope'"),
    (["table", "drop-rejected", "nope", "shop.orders"], "there is no changefeed 'nope'"),
    (["ddl", "list", "nope"], "there is no changefeed 'nope'"),
    (["ddl", "skip", "nope", "shop.orders"], "there is no changefeed 'nope'"),
    (["node", "drain", "nope"], "there is no node 'nope'; `sluice node list` shows all nodes"),
]


@pytest.mark.parametrize(("arguments", "message"), _NOT_FOUND, ids=lambda value: " ".join(value)[:40])
def test_what_is_not_there_is_exit_code_3(server: Server, arguments: list[str], message: str) -> None:
    answer = server.sluice(*arguments)
    assert (answer.returncode, answer.stdout) == (3, "")
    assert answer.stderr.startswith(f"sluice: {message}")


@pytest.mark.parametrize("arguments", [["node", "drain", "n1"], ["node", "resign"]], ids=" ".join)
def test_what_is_there_wants_to_be_confirmed(server: Server, arguments: list[str]) -> None:
    answer = server.sluice(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "sluice: There is no terminal to ask on; confirm with --yes.\n"


def test_a_node_without_tables_is_not_drained(server: Server) -> None:
    answer = server.sluice("node", "drain", "n1", "--yes")
    assert answer.returncode == 1
    assert "is not a processor; it has no tables to give up" in answer.stderr


def test_the_only_possible_owner_does_not_resign(server: Server) -> None:
    answer = server.sluice("node", "resign", "--yes")
    assert answer.returncode == 1
    assert "is the only node that may be owner; start another one first" in answer.stderr


def test_nobody_there_is_exit_code_5() -> None:
    answer = run(["changefeed", "list"], {"SLUICE_SERVER": "127.0.0.1:1"})
    assert answer.returncode == 5
    assert answer.stderr.startswith("sluice: the server at 127.0.0.1:1 does not answer")
    assert "choose another one with --server or SLUICE_SERVER" in answer.stderr
