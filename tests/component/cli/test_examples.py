"""Each example in the help of a command is run as it stands there."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli.groups import Branch, Members
from cli.main import COMMANDS
from devstack.mongodb.server import Client
from tests import zygote
from tests.component.node.server_process import Server
from tests.zygote import SLUICE

_SECONDS = 3
"""For examples that run until they are interrupted, or wait for a node that takes tables: there is none here."""


def _examples(members: Members = COMMANDS) -> Iterator[str]:
    for name, member in members.items():
        if isinstance(member, Branch):
            yield from _examples(member.members)
        else:
            yield from member.loaded(name).examples


EXAMPLES = [example for example in _examples() if not example.startswith(("sluice dev", "sluice server"))]


@pytest.fixture(scope="module")
def place(
    server: Server, source_uri: str, source_client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A directory with the files that the examples name, beside a server with their changefeeds."""
    directory = tmp_path_factory.mktemp("examples")
    source_client["shop"]["items"].insert_one({})
    feed = {"source": source_uri, "sink": "blackhole://", "start": "now", "filter": {"tables": ["shop.*"]}}
    (directory / "changefeeds").mkdir()
    (directory / ".config" / "sluice").mkdir(parents=True)
    (directory / ".config" / "sluice" / "config.yaml").write_text("contexts: {prod: {server: sluice.example}}\n")
    for id in ("orders", "payments"):
        for path in (directory / f"{id}.yaml", directory / "changefeeds" / f"{id}.yaml"):
            path.write_text(yaml.safe_dump({"id": id, **feed}))
        created = server.sluice("changefeed", "create", str(directory / f"{id}.yaml"))
        assert created.returncode == 0, created.stderr
    yield directory
    source_client.drop_database("shop")
    for id in ("orders", "payments"):
        server.sluice("changefeed", "remove", id, "--yes")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_understood(
    server: Server, place: Path, example: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(place)
    [_, *words], read_from = _as_a_shell(example)
    environment = {**os.environ, "SLUICE_SERVER": server.address, "HOME": str(place)}
    said = tmp_path / "said"
    with Path(read_from).open() as stdin, (tmp_path / "shown").open("w") as stdout, said.open("w") as stderr:
        process = zygote.start([str(SLUICE), *words], environment, stdin=stdin, stdout=stdout, stderr=stderr)
        try:
            code = process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = 0
    errors = said.read_text()
    assert "Traceback" not in errors
    assert "Usage:" not in errors
    assert code != 2 or "There is no terminal to ask on" in errors, errors


def _as_a_shell(example: str) -> tuple[list[str], str]:
    """Its words, and the file that it reads: a process of a shell for each costs more than what it is asked for."""
    words = shlex.split(example.partition(" | ")[0])
    read_from = words[words.index("<") + 1] if "<" in words else os.devnull
    end = next((at for at, word in enumerate(words) if word in ("<", ">")), len(words))
    files = [sorted(map(str, Path().glob(word))) if word.endswith("*.yaml") else [word] for word in words[:end]]
    return [word for found in files for word in found], read_from
