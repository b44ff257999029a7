"""Each kind of store does what the sink relies on."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.errors import SinkRefused, SinkUnavailable
from devstack.s3.server import PAGE
from sink.messages.files.bucket import PART_BYTES
from sink.messages.files.directory import Directory, open_store
from sink.messages.files.store import Store, create_same
from tests.simulation.messages.store import ModelStore


@pytest.fixture(params=["directory", "bucket", "model"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """The model is that of the simulation."""
    if request.param == "model":
        return ModelStore()
    place = f"file://{tmp_path}/orders" if request.param == "directory" else request.getfixturevalue("bucket")
    store = open_store(FileSinkOptions.parse(place).place)
    store.check()
    return store


def test_a_check_leaves_it_empty(store: Store) -> None:
    assert store.empty()
    store.create("log/1/0.json", b"")
    assert not store.empty()
    store.check()
    assert store.names("") == ["log"]


def test_a_name_is_written_once_and_whole(store: Store) -> None:
    assert store.create("log/1/0.json", b"one")
    assert not store.create("log/1/0.json", b"two")
    assert not store.create("log/1/0.json", b"one")
    assert store.read("log/1/0.json") == b"one"
    assert create_same(store, "log/1/0.json", b"one")
    assert not create_same(store, "log/1/0.json", b"two")
    assert store.names("log/1") == ["0.json"]


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 3])
def test_a_new_file_is_there_once_it_has_ended(store: Store, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    file = store.new("data/7/a-0.json")
    for at in range(0, size, 3_000_000):
        file.write(content[at : min(at + 3_000_000, size)])
    file.end()
    assert store.read("data/7/a-0.json") == content[:size]


def test_a_file_that_was_closed_can_be_removed(store: Store) -> None:
    file = store.new("data/7/a-0.json")
    file.write(bytes(PART_BYTES + 1))
    file.close()
    file.close()
    store.remove("data/7/a-0.json")
    assert store.names("data/7") == []
    store.tidy("data/7")
    assert store.names("data") == []


def test_names_are_sorted_and_those_of_one_folder(store: Store) -> None:
    for name in ("log/7/2.json", "log/7/1.json", "log/7/10.json", "log/70/3.json", "log/8/1.json", "feed.json"):
        store.create(name, b"")
    assert store.names("log") == ["7", "70", "8"]
    assert store.names("log/7") == ["1.json", "10.json", "2.json"]
    assert store.names("log/7", after="10.json") == ["2.json"]
    assert store.names("log/7", after="1") == ["1.json", "10.json", "2.json"]
    assert store.names("log", after="7") == ["70", "8"]
    assert store.names("log/9") == store.names("other") == []


def test_names_come_in_pages(store: Store) -> None:
    expected = [f"{number:012d}.json" for number in range(PAGE + 5)]
    for name in expected:
        store.new(f"log/7/{name}").end()
    assert store.names("log/7") == expected
    assert store.names("log/7", after=expected[PAGE]) == expected[PAGE + 1 :]


def test_what_is_not_there_is_none_and_may_be_removed(store: Store) -> None:
    assert store.read("log/7/1.json") is None
    store.remove("log/7/1.json")
    store.tidy("log/7")


def test_names_may_have_any_sign(store: Store) -> None:
    name = "schema/view:shop.a%20b%2F%C3%A4+&?#/0.json"
    assert store.create(name, b"x")
    assert store.read(name) == b"x"
    assert store.names("schema") == ["view:shop.a%20b%2F%C3%A4+&?#"]
    store.remove(name)
    assert store.read(name) is None


def test_a_tidy_folder_keeps_what_is_complete(store: Store) -> None:
    store.create("data/7/a-0.json", b"1")
    store.tidy("data/7")
    assert store.names("data/7") == ["a-0.json"]


def test_what_the_file_system_refuses_is_said(tmp_path: Path) -> None:
    with pytest.raises(SinkUnavailable, match="No such file"):
        Directory(str(tmp_path / "missing" / "orders")).check()
    (tmp_path / "file").write_text("")
    with pytest.raises((SinkRefused, SinkUnavailable)):
        Directory(str(tmp_path / "file")).create("x", b"")
