"""`stamp`: tells whether files were replaced, without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def stamp(paths: Iterable[Path | str]) -> Stamp:
    """Two stamps of the same paths differ if a file was written or replaced between them. A mounted Secret is replaced by a symbolic link."""
    return tuple(_of(Path(path)) for path in paths)


def _of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
