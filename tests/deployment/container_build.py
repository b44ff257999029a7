"""The instructions of the Dockerfile, and its build stage run without docker.

The instructions themselves run, with the image's folders moved under a temporary root: a step that would fail in `docker build` fails here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
FOLDERS = ("/src", "/build", "/wheels", "/opt/sluice")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    word: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    base: str
    instructions: tuple[Instruction, ...]

    def of(self, word: str) -> list[str]:
        return [each.text for each in self.instructions if each.word == word]

    @property
    def environment(self) -> dict[str, str]:
        return dict(pair.split("=", 1) for text in self.of("ENV") for pair in shlex.split(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    arguments: dict[str, str]
    stages: dict[str, Stage]

    @classmethod
    def read(cls) -> Self:
        lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
        instructions = [
            Instruction(word=line.split(None, 1)[0], text=line.split(None, 1)[1])
            for line in re.sub(r"\\\n", "", "\n".join(lines)).splitlines()
            if line.strip()
        ]
        starts = [number for number, each in enumerate(instructions) if each.word == "FROM"]
        stages = {}
        for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
            base, _, name = instructions[start].text.partition(" AS ")
            stages[name] = Stage(base=base, instructions=tuple(instructions[start + 1 : end]))
        arguments = dict(each.text.split("=", 1) for each in instructions[: starts[0]] if each.word == "ARG")
        return cls(arguments=arguments, stages=stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The folders of the image, under `root`."""

    root: Path

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def environment(self, dockerfile: Dockerfile) -> dict[str, str]:
        """The environment of the run stage, with this machine's Java. Processes write to a folder of their own."""
        scratch = self.root / "tmp"
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o1777)
        told = {name: moved(value, self.root) for name, value in dockerfile.stages["run"].environment.items()}
        java = Path(os.path.realpath(shutil.which("java") or "java")).parents[1]
        told["PATH"] = told["PATH"].replace("$PATH", "/usr/bin:/bin")
        return (
            told
            | {"JAVA_HOME": os.environ.get("JAVA_HOME", str(java)), "TMPDIR": str(scratch), "HOME": str(scratch)}
            | {"SPARK_LOCAL_DIRS": str(scratch), "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch}"}
        )


def build(dockerfile: Dockerfile, root: Path) -> Image:
    """The build stage, and what the run stage does with the product after it was copied there."""
    image = Image(root=root)
    for instruction in dockerfile.stages["build"].instructions:
        match instruction.word:
            case "COPY":
                *sources, target = instruction.text.split()
                _copy(sources, Path(moved(target, root)))
            case "RUN":
                subprocess.run(["sh", "-euc", moved(instruction.text, root)], check=True, cwd=root, env=_with_python())
            case word:
                raise AssertionError(f"{word} in the build stage: say here how it is carried out")
    words = [each.word for each in dockerfile.stages["run"].instructions]
    for instruction in dockerfile.stages["run"].instructions[words.index("COPY") :]:
        if instruction.word == "RUN":
            command = ["sh", "-euc", moved(instruction.text, root)]
            subprocess.run(command, check=True, cwd=root, env=image.environment(dockerfile))
    return image


def _with_python() -> dict[str, str]:
    """The environment with a `python`: a bare Debian has only `python3`, but the base image of the build stage has `python`."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def moved(text: str, root: Path) -> str:
    return re.sub(rf"(?<![\w./-])({'|'.join(FOLDERS)})(?![\w-])", lambda match: f"{root}{match[0]}", text)


def context() -> list[Path]:
    """The files that docker sees: `.dockerignore`, a list of exceptions to *, applied to the files that git does not ignore."""
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*", "the context is a list of what is wanted"
    wanted = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    paths = [Path(line) for line in listed.stdout.splitlines()]
    return [path for path in paths if path.parts[0] in wanted and (ROOT / path).is_file()]


def _copy(sources: list[str], target: Path) -> None:
    for path in context():
        for source in sources:
            if source == ".":
                to = target / path
            elif str(path) == source:
                to = target / path.name
            else:
                continue
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, to)
