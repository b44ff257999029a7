"""A file that was written, replaced, made or removed has another stamp."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from credentials.file_stamp import stamp


def _written_later(path: Path) -> None:
    """With content of the same size."""
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def _replaced(path: Path) -> None:
    """As a mounted Secret is: by a file of the same size and time."""
    before = path.stat()
    other = path.with_name("other")
    other.write_text("two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "change",
    [_written_later, _replaced, Path.unlink, lambda path: path.write_text("longer")],
    ids=["written", "replaced", "removed", "longer"],
)
def test_a_file_that_changed_has_another_stamp(change: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("one")
    before = stamp([path, tmp_path / "missing"])
    assert stamp([path, tmp_path / "missing"]) == before
    change(path)
    assert stamp([path, tmp_path / "missing"]) != before
