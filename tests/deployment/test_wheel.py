"""The wheel works in an environment of its own, and the handbook says why it wants one."""

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a copy of what it is built from: a build leaves folders beside its sources."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/", "bench/results/")):
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, sources / name)
    command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "--offline", "--no-build-isolation"]
    subprocess.run([*command, "--python", sys.executable, "--out-dir", str(built), str(sources)], check=True)
    [found] = built.glob("*.whl")
    return found


def top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


def test_the_command_line_runs_from_a_wheel_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps"]
    subprocess.run([*install, "--python", str(python), str(wheel)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    run = subprocess.run(
        [str(environment / "bin" / "sluice"), "version"],
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


def test_the_handbook_names_the_packages_that_the_wheel_puts_beside_others(wheel: Path) -> None:
    told = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    [named] = re.findall(r"packages of common names: ([^.]*)\.", told)
    assert set(re.findall(r"`(\w+)`", named)) == top_level(wheel)


def test_no_locked_package_has_a_name_of_ours(wheel: Path) -> None:
    ours, taken = top_level(wheel), set()
    for each in distributions():
        if each.name != _OURS:
            taken |= {file.parts[0] for file in each.files or () if file.suffix == ".py" and len(file.parts) > 1}
    assert ours & taken == set()
