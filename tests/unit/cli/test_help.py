"""Help that a person reads: plain, 80 columns wide, with examples, and quick."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from cli.groups import Branch, Leaf, Members
from cli.main import COMMANDS, app


def _leaves(members: Members = COMMANDS, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    for name, member in members.items():
        if isinstance(member, Branch):
            yield from _leaves(member.members, (*path, name))
        else:
            yield (*path, name), member


LEAVES = dict(_leaves())


def _help(*path: str, flag: str = "--help") -> str:
    shown = CliRunner().invoke(app, [*path, flag], env={"COLUMNS": "80"}, prog_name="sluice")
    assert shown.exit_code == 0, shown.output
    return shown.stdout


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_help_of_a_command_says_what_it_does_with_examples(path: tuple[str, ...]) -> None:
    command = LEAVES[path].loaded(path[-1])
    shown = _help(*path)
    assert (command.help or "").partition("\n")[0] == LEAVES[path].summary, "as the help of its group says"
    assert max(map(len, shown.splitlines())) <= 80
    assert "\nExamples:\n" in shown
    assert all(line.startswith(f"sluice {' '.join(path)}") for line in command.examples)
    assert not re.findall(r"<\w+>|\.\.\.\]?$|\[\w+\|\w+_s\b", shown.partition("Options:")[2])
    assert not re.findall(r"x[<>]=|\{|\[\[|\]\.\.\.|default: \d+\.0", shown.replace("${file:...}", ""))


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_a_group_lists_its_commands(flag: str) -> None:
    shown = _help("table", flag=flag)
    assert "  recopy          Copy tables again while the changefeed runs.\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_help_is_a_command_too() -> None:
    shown = CliRunner().invoke(app, ["help", "changefeed", "query"], env={"COLUMNS": "80"}, prog_name="sluice")
    assert shown.stdout == _help("changefeed", "query")


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        (["--help"], {"grpc", "pydantic", "rich", "bson", "yaml", "structlog", "pymongo"}),
        (["changefeed", "query", "--help"], {"pydantic", "rich", "bson", "yaml", "structlog", "pymongo", "pyspark"}),
        (["node", "list", "--help"], {"pydantic", "rich", "bson", "yaml", "structlog", "pymongo", "pyspark"}),
        (["table", "list", "--help"], {"pydantic", "rich", "bson", "yaml", "structlog", "pymongo", "pyspark"}),
    ],
)
def test_a_command_loads_only_what_it_needs(command: list[str], unneeded: set[str]) -> None:
    """Imports are nearly all of a command's time."""
    code = f"import sys\nfrom cli.main import app\ntry: app({command!r})\nfinally: print('LOADED', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.partition("LOADED")[2].split())
    assert not unneeded & loaded
