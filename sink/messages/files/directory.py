"""`Directory`: a store on a file system that all nodes share.

`create` is a conditional put: the content is written beside, made durable, and linked to its name, which fails if the name exists. So a
file has its whole content or does not exist, and one of several writers wins. NFS and local file systems link atomically.

`open_store` opens it, or a bucket, as a URI says.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import BinaryIO

from changefeed.config.sinks.file_options import DirectoryPlace, StorePlace
from changefeed.errors import SinkRefused
from credentials.secret_files import SecretFiles
from sink.messages.files.store import Store
from sluice_client.feed_store import Folder

_BESIDE = ".part"


class Directory(Folder):
    if_empty = "is its file system mounted here?"

    def check(self) -> None:
        """Makes the directory, but no directory above it."""
        name = f"probe-{secrets.token_hex(8)}"
        with self._errors("making a file"):
            self.path.mkdir(exist_ok=True)
            try:
                if not self.create(name, b"1") or self.create(name, b"2"):
                    raise SinkRefused(f"{self.path}: a file was made twice under one name; use another file system")
            finally:
                with suppress(OSError):
                    (self.path / name).unlink()

    def empty(self) -> bool:
        with self._errors("listing"):
            return not self.path.exists() or next(self.path.iterdir(), None) is None

    def create(self, name: str, content: bytes) -> bool:
        final = self.path / name
        beside = final.with_name(f".{final.name}.{secrets.token_hex(8)}{_BESIDE}")
        with self._errors(f"writing {name}"):
            self._make_parent(final)
            try:
                with beside.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(beside, final)
                except FileExistsError:
                    return False
            finally:
                beside.unlink(missing_ok=True)
            _sync(final.parent)
        return True

    def new(self, name: str) -> FileOnDisk:
        final = self.path / name
        with self._errors(f"writing {name}"):
            self._make_parent(final)
            beside = final.with_name(f".{final.name}{_BESIDE}")
            return FileOnDisk(beside.open("xb"), beside, final, self._errors)

    def remove(self, name: str) -> None:
        with self._errors(f"removing {name}"):
            (self.path / name).unlink(missing_ok=True)

    def below(self, folder: str) -> Iterator[str]:
        for at, _, names in os.walk(self.path / folder):
            within = Path(at).relative_to(self.path)
            yield from (str(within / name) for name in names if not name.startswith(".") or name.endswith(_BESIDE))

    def tidy(self, folder: str, begins: str = "") -> None:  # noqa: ARG002 - `below` shows them
        with suppress(OSError):
            (self.path / folder).rmdir()

    def _make_parent(self, file: Path) -> None:
        """A directory that was made is itself durable. The sink's own is made by `check` alone."""
        within = [folder for folder in (file.parent, *file.parent.parents) if folder.is_relative_to(self.path)]
        missing = [folder for folder in within if folder != self.path and not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)


class FileOnDisk:
    """It has its name once it has ended: a reader of folders sees whole files."""

    def __init__(
        self, file: BinaryIO, beside: Path, final: Path, errors: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._beside = beside
        self._path = final
        self._errors = errors

    def write(self, content: bytes) -> None:
        with self._errors(f"writing {self._path.name}"):
            self._file.write(content)

    def end(self) -> None:
        with self._errors(f"writing {self._path.name}"), self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._beside.rename(self._path)
            _sync(self._path.parent)

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()
            self._beside.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def open_store(place: StorePlace, files: SecretFiles | None = None) -> Store:
    """Reaches nothing yet. `files`: from which credentials may be read, if not those that this process was started with."""
    if isinstance(place, DirectoryPlace):
        return Directory(place.path)
    from sink.messages.files.bucket import ObjectBucket  # noqa: PLC0415 - it loads the client of S3, which takes time and memory
    from sink.messages.files.bucket_client import bucket_client  # noqa: PLC0415 - as above

    return ObjectBucket(place, lambda: bucket_client(place, files))
