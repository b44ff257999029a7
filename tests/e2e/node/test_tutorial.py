"""The tutorial of the handbook, as a reader follows it: its commands, in their order, show what the page shows.

What differs each time (ports, times, ids of nodes, durations, how often a window was done) is the same word on both sides. A list that is not as on the page yet is looked
at again, as the page says.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
from code import InteractiveConsole
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import zygote
from tests.until import until

_PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VOLATILE = (
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"(?m)^logs +\S+", "logs DIRECTORY"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\dZ?", "TIME"),
    (r"\bplay-[0-9a-f]+\b", "NODE"),
    (r"\b\d{10}\.\d+(/[0-9a-f]{8})?", "POSITION"),
    (r"\b\d+(\.\d+)?s\b", "SECONDS"),
    (r"(?m)[ \t]+", " "),
    (r"(?m) $", ""),
    (r"TIME TIME \d+ ", "TIME TIME TRIES "),
    (r"(?m)(^at TIME, SECONDS left\n)+", r"\1"),
)
_LOOKS = re.compile(r"sluice (changefeed|table|ddl) (list|rejected)|sorted\(copy|copy\.\w+\.find_one\((?!.*session)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, or a line of Python, and what the page shows of it."""

    said: str
    shown: str
    python: bool


@pytest.fixture
def playground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What `sluice dev up` says. The reader has pasted what it says to paste, and is in a directory of his own."""
    said = tmp_path / "said"
    with said.open("wb") as out:
        process = zygote.start([str(zygote.SLUICE), "dev", "up"], os.environ, stdout=out, stderr=out)
    try:
        until(lambda: "Running until" in said.read_text() or process.poll() is not None, "the start", said.read_text)
        told = said.read_text()
        for line in re.findall(r"^ +export (.*)$", told, re.MULTILINE):
            name, _, value = line.partition("=")
            monkeypatch.setenv(name, *shlex.split(value))
        monkeypatch.chdir(tmp_path)
        yield told
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


@pytest.mark.costly("because it starts what a new user starts: etcd, two MongoDB and a node with its Spark")
def test_the_tutorial_shows_what_a_reader_sees(playground: str) -> None:
    every = steps_of(_PAGE.read_text(encoding="utf-8"))
    up = next(step for step in every if step.said == "sluice dev up")
    steps = every[every.index(up) + 1 :]
    assert _same(playground).startswith(_same(up.shown))
    shell: dict[str, Any] = {}
    try:
        for step in steps:
            if step.said == "python":
                continue
            if _LOOKS.match(step.said):
                until(partial(_shows, step, shell), step.said, partial(_answer, step, shell))
            else:
                assert _same(_answer(step, shell)) == _same(step.shown), step.said
    finally:
        for name in ("shop", "copy"):
            if name in shell:
                shell[name].client.close()


def steps_of(page: str) -> list[Step]:
    steps: list[Step] = []
    for kind, block in _BLOCK.findall(page):
        prompt = ">>> " if kind == "pycon" else "$ "
        for each in re.split(rf"(?m)^{re.escape(prompt)}", block)[1:]:
            said, _, shown = each.partition("\n")
            if said.endswith("<<END"):
                body, _, shown = shown.partition("\nEND\n")
                said = f"{said}\n{body}\nEND"
            steps.append(Step(said=said, shown=shown, python=kind == "pycon"))
    return steps


def _shows(step: Step, shell: dict[str, Any]) -> bool:
    return _same(_answer(step, shell)) == _same(step.shown)


def _answer(step: Step, shell: dict[str, Any]) -> str:
    if step.python:
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
            InteractiveConsole(shell).push(step.said)
        return out.getvalue()
    if step.said.startswith("sluice "):
        done = zygote.run([str(zygote.SLUICE), *shlex.split(step.said)[1:]], os.environ, "", 180)
    else:
        done = subprocess.run(["bash", "-c", step.said], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _same(text: str) -> str:
    for volatile, word in _VOLATILE:
        text = re.sub(volatile, word, text)
    return text.strip()
