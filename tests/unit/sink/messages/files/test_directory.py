"""What a directory has been given is durable before anybody is told that it is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sink.messages.files.directory import Directory


class Disk:
    """Which files and folders were made durable, and what was linked or renamed by then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        fsync, link, rename = os.fsync, os.link, os.rename

        def synced(handle: int) -> None:
            self.done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().suffix or 'folder'}")
            fsync(handle)

        def linked(source: Path, target: Path) -> None:
            self.done.append("link")
            link(source, target)

        def renamed(source: Path, target: Path) -> None:
            self.done.append("rename")
            rename(source, target)

        monkeypatch.setattr(os, "fsync", synced)  # nothing else shows whether a file would outlive a power cut
        monkeypatch.setattr(os, "link", linked)
        monkeypatch.setattr(os, "rename", renamed)


def test_a_name_stands_for_a_content_that_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    assert Directory(str(tmp_path)).create("0.json", b"1")
    assert disk.done == ["sync .part", "link", "sync folder"]


def test_a_folder_that_was_made_is_durable_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    assert Directory(str(tmp_path)).create("log/7/0.json", b"1")
    assert disk.done == ["sync folder", "sync folder", "sync .part", "link", "sync folder"]


def test_of_two_writers_of_a_name_one_wins(tmp_path: Path) -> None:
    directory = Directory(str(tmp_path))
    assert directory.create("0.json", b"1")
    assert not directory.create("0.json", b"2")
    assert directory.read("0.json") == b"1"
    assert directory.names("") == ["0.json"]


def test_a_file_of_rows_is_durable_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    file = Directory(str(tmp_path)).new("x-0.json")
    file.write(b"rows")
    assert disk.done == []
    file.end()
    assert disk.done == ["sync .part", "rename", "sync folder"]
