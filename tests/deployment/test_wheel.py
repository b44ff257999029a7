"""The wheel works in an environment of its own, and the handbook says why it wants one; that of readers works without the product."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import distributions, version
from pathlib import Path

import pytest

from tests.deployment.container_build import ROOT

_OURS = "sluice"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy: a build leaves folders beside its sources."""
    sources = tmp_path_factory.mktemp("sources")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "bench/results/")):
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, sources / name)
    return sources


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made of a source distribution."""
    built = tmp_path_factory.mktemp("wheel")
    _build(tree, built)
    [_], [found] = built.glob("*.tar.gz"), built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def client(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("client")
    _build(tree / "client", built, "--wheel")
    [found] = built.glob("*.whl")
    return found


def _build(sources: Path, built: Path, *options: str) -> None:
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--offline", "--no-build-isolation", *options]
    subprocess.run([*command, "--python", sys.executable, "--out-dir", str(built), str(sources)], check=True)


def _environment(wheel: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Its interpreter and its packages: the wheel, and what is locked."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(wheel)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python, packages


def top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def test_the_command_line_runs_from_a_wheel_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    python, packages = _environment(wheel, tmp_path)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    run = subprocess.run(
        [str(python.with_name("sluice")), "version"],
        check=False,
        cwd=tmp_path,
        env=plain,
        capture_output=True,
        text=True,
    )

    assert (run.returncode, run.stdout) == (0, f"{version(_OURS)}\n"), run.stderr
    which = [str(python), "-c", "import admin, cli.main, node; print(admin.__file__, cli.main.__file__, node.__file__)"]
    places = subprocess.run(which, cwd=tmp_path, env=plain, check=True, capture_output=True, text=True).stdout.split()
    assert [place for place in places if not place.startswith(str(packages))] == []


def test_the_wheel_says_what_it_is_and_who_may_use_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("dist-info/METADATA")]
        told = archive.read(metadata).decode()
        licenses = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    assert "License-Expression: Apache-2.0" in told
    assert "Requires-Python: >=3.11" in told
    assert "# Sluice" in told
    assert licenses


def test_the_handbook_names_the_packages_that_the_wheel_puts_beside_others(wheel: Path) -> None:
    told = (ROOT / "docs/how-to/install.md").read_text(encoding="utf-8")
    [named] = re.findall(r"packages of common names: ([^.]*)\.", told)
    assert set(re.findall(r"`(\w+)`", named)) == top_level(wheel)


def test_the_wheel_has_what_the_console_sends(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sent = {name for name in archive.namelist() if name.startswith("console/static/")}
    assert sent == {f"console/static/{path.name}" for path in (ROOT / "console/static").iterdir()}
    assert len(sent) == 3


def test_no_locked_package_has_a_name_of_ours(wheel: Path) -> None:
    ours, taken = top_level(wheel), set()
    for each in distributions():
        if each.name != _OURS:
            taken |= {file.parts[0] for file in each.files or () if file.suffix == ".py" and len(file.parts) > 1}
    assert ours & taken == set()


def test_readers_of_a_changefeed_are_a_wheel_without_the_product(client: Path, wheel: Path, tmp_path: Path) -> None:
    ours = {"pyspark_sluice", "sluice_client"}
    assert top_level(client) == ours < top_level(wheel)
    python, packages = _environment(client, tmp_path)
    modules = [
        f"{path.parent.name}.{path.stem}" for name in ours for path in sorted((packages / name).glob("[a-z]*.py"))
    ]
    assert len(modules) > 10
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = f"import importlib, sys; [importlib.import_module(name) for name in {modules}]; print(*sys.modules)"
    said = subprocess.run(
        [str(python), "-c", code], cwd=tmp_path, env=plain, check=True, capture_output=True, text=True
    )
    assert (top_level(wheel) - ours).isdisjoint(said.stdout.split())
