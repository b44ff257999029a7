"""The image: the instructions of the Dockerfile, and, in `make kubernetes`, its build stage run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from devstack.etcd.server import EtcdServer
from devstack.ports import free_port
from tests.deployment.container_build import ROOT, Dockerfile, Image, context

_DEADLINE_SECONDS = 300.0
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_base_is_one_version_and_may_be_pinned_by_its_digest(dockerfile: Dockerfile) -> None:
    assert re.fullmatch(r"python:3\.11\.\d+-slim-[a-z]+", dockerfile.arguments["BASE"])
    assert {stage.base for stage in dockerfile.stages.values()} == {"${BASE}"}


def test_it_runs_as_nobody_special(dockerfile: Dockerfile) -> None:
    assert dockerfile.stages["run"].of("USER") == ["10001:10001"]


def test_the_final_stage_holds_a_runtime_of_java_an_init_and_no_build_tools(dockerfile: Dockerfile) -> None:
    commands = " ".join(dockerfile.stages["run"].of("RUN"))
    installed = re.search(r"apt-get install --yes --no-install-recommends ([a-z0-9 -]+?) &&", commands)
    assert installed is not None
    assert installed[1].split() == ["openjdk-17-jre-headless", "tini"]
    assert "pip uninstall --yes --root-user-action=ignore setuptools wheel pip" in commands
    assert dockerfile.stages["run"].of("ENTRYPOINT") == ['["/usr/bin/tini", "--", "/opt/sluice/bin/entrypoint"]']
    assert dockerfile.stages["run"].of("COPY") == ["--from=build /opt/sluice /opt/sluice"]


def test_the_context_holds_each_package_and_nothing_of_development() -> None:
    packages = {pattern.removesuffix("*") for pattern in _PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]}
    folders = {path.parts[0] for path in context() if len(path.parts) > 1}
    assert folders == {*(package for package in packages if (ROOT / package).is_dir()), "container"}


@pytest.mark.parametrize("name", ["build", "runtime"])
def test_the_images_locks_agree_with_the_lock_of_development(name: str) -> None:
    everything = _locked("requirements.lock")
    assert _locked(f"container/{name}.lock").items() <= everything.items()


def test_the_runtime_lock_is_what_the_product_requires_and_what_that_requires() -> None:
    wanted = {str(canonicalize_name(Requirement(text).name)) for text in _PROJECT["project"]["dependencies"]}
    found: set[str] = set()
    while wanted:
        name = wanted.pop()
        found.add(name)
        for text in requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted |= {str(canonicalize_name(requirement.name))} - found
    locked = {name for name, entry in _locked("container/runtime.lock").items() if "win32" not in entry}
    assert locked == found


@pytest.mark.kubernetes
def test_only_what_is_locked_is_installed(image: Image) -> None:
    packages = image.path("/opt/sluice/lib/python3.11/site-packages")
    installed = {str(canonicalize_name(path.name.split("-")[0])) for path in packages.glob("*.dist-info")}
    locked = {name for name, entry in _locked("container/runtime.lock").items() if "win32" not in entry}
    assert installed == locked | {"sluice"}


@pytest.mark.kubernetes
def test_it_tells_its_version(image: Image, dockerfile: Dockerfile) -> None:
    told = _run(image, dockerfile, "version")
    assert told.stdout.strip() == _PROJECT["project"]["version"]


@pytest.mark.kubernetes
def test_a_node_maps_the_classes_of_its_spark(image: Image, dockerfile: Dockerfile) -> None:
    archive = image.path("/opt/sluice/spark-classes.jsa")
    run_a_job = f"""
import subprocess
from glob import glob
from processor.spark.runner import SparkRunner
with SparkRunner() as spark:
    spark.probe()
    asked = ["grep", "--files-with-matches", "--no-messages", "--fixed-strings", "{archive}", *glob("/proc/[0-9]*/maps")]
    print(subprocess.run(asked, stdout=subprocess.PIPE).stdout != b"")
"""
    done = subprocess.run(
        [str(image.path("/opt/sluice/bin/python")), "-c", run_a_job],
        env=image.environment(dockerfile),
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "True"


@pytest.fixture(params=["here", pytest.param("image", marks=pytest.mark.kubernetes)])
def installed(request: pytest.FixtureRequest, dockerfile: Dockerfile, tmp_path: Path) -> tuple[str, dict[str, str]]:
    """The program, and its environment: the image's, or this machine's with the image's places to write to."""
    if request.param == "image":
        image: Image = request.getfixturevalue("image")
        return str(image.path("/opt/sluice/bin/entrypoint")), image.environment(dockerfile)
    own = {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "SPARK_LOCAL_DIRS": str(tmp_path)}
    own["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={tmp_path}"
    own["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return str(ROOT / "container" / "entrypoint"), {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": "1"}


def test_a_server_is_ready_while_etcd_is_there_and_writes_to_tmp_only(
    installed: tuple[str, dict[str, str]], own_etcd: EtcdServer, tmp_path: Path
) -> None:
    http = free_port()
    command = [
        "server",
        "--etcd",
        own_etcd.endpoint,
        "--admin-address",
        f"127.0.0.1:{free_port()}",
        "--session-ttl",
        "2",
    ]
    arguments = [*command, "--http-address", f"127.0.0.1:{http}", "--grace", "1"]
    with _server(*installed, arguments, tmp_path / "server.log") as running:
        _wait(lambda: _status(http, "readyz") == 200, running)
        own_etcd.kill()
        _wait(lambda: _status(http, "readyz") == 503, running)
        assert _status(http, "healthz") == 200, "etcd's trouble is no reason to restart the node"
        own_etcd.start()
        _wait(lambda: _status(http, "readyz") == 200, running)


@pytest.mark.soak
def test_it_is_an_executor_when_spark_says_so(image: Image, dockerfile: Dockerfile) -> None:
    """A real driver starts an executor through the entry point, as Kubernetes would, and runs a Python task on it."""
    script = image.path("/tmp/spark_driver.py")
    shutil.copy(ROOT / "tests" / "deployment" / "spark_driver.py", script)
    done = subprocess.run(
        [str(image.path("/opt/sluice/bin/python")), str(script), str(image.path("/opt/sluice/bin/entrypoint"))],
        env=image.environment(dockerfile),
        cwd=image.path("/tmp"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def _locked(path: str) -> dict[str, str]:
    """Each package's entry: version, condition, hashes."""
    entries = re.split(r"^(?=\S)", (ROOT / path).read_text(), flags=re.MULTILINE)
    return {_key(entry): entry for entry in entries if entry.strip()}


def _key(entry: str) -> str:
    requirement = Requirement(entry.partition("\\")[0].strip())
    return str(canonicalize_name(requirement.name)) if "3.12" not in str(requirement.marker) else str(requirement)


def _run(image: Image, dockerfile: Dockerfile, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(image.path("/opt/sluice/bin/entrypoint")), *arguments],
        env=image.environment(dockerfile),
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=True,
    )


@contextmanager
def _server(
    program: str, environment: dict[str, str], arguments: list[str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs on a read-only root file system, with its own /tmp."""
    tmp = environment["TMPDIR"]
    read_only = f'mount -o remount,ro,bind / && mount -t tmpfs none {tmp} && cd {tmp} && exec "$@"'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-ec", read_only, "sh", program, *arguments]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as running:
        try:
            yield running
        except BaseException as error:
            error.add_note(log.read_text()[-3000:])
            raise
        finally:
            running.terminate()
            running.wait(_DEADLINE_SECONDS)


def _status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def _wait(condition: Callable[[], bool], running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        assert running.poll() is None, f"the server ended with {running.returncode}"
        assert time.monotonic() < deadline, "the server did not get there in time"
        time.sleep(0.1)
