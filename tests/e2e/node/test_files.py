"""A changefeed writes into files; what is read back from them alone equals the source, wherever its node was killed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from bson.raw_bson import RawBSONDocument

from devstack.mongodb.server import Client
from devstack.s3.faulty_proxy import FaultyProxy
from tests.component.node.server_process import Server
from tests.e2e.node.event_judge import judge
from tests.e2e.node.filed_changefeed import S3_KEYS, TABLES, Bucketed, Filed, fill
from tests.e2e.node.mortal import Mortal
from tests.e2e.node.workload import ddls_of_each_kind, writing
from tests.independent_compare import differences
from tests.independent_file_reader import rebuilt
from tests.unit.sink.messages.changes import no_utf8
from tests.until import until
from tests.zygote import SLUICE

pytestmark = pytest.mark.costly("a node with Spark, and all that was written is read again and compared")


@pytest.fixture
def feed(
    node: Server, database: str, source_uri: str, source_client: Client, target_client: Client, tmp_path: Path
) -> Iterator[Filed]:
    fill(source_client, database)
    yield Filed(node, database, source_client, source_uri, target_client, tmp_path / "files")
    node.sluice("changefeed", "remove", database, "--yes")
    target_client.drop_database(database)


@pytest.mark.parametrize("query", ["", pytest.param("&format=bson&compression=none", marks=pytest.mark.soak)])
def test_what_is_read_back_equals_the_source(feed: Filed, target_uri: str, query: str) -> None:
    feed.create(query)
    with writing(feed.source, TABLES):
        for number in range(2):
            ddls_of_each_kind(feed.source, number)
            feed.until_written()
            if number == 0:
                feed.sluice("table", "recopy", feed.id, f"{feed.id}.orders", "--yes")
    feed.until_written()
    until(lambda: feed.messages_of("recopy"), "the table that is copied anew")
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)


def test_parquet_files_alone_say_what_the_source_holds(feed: Filed, target_uri: str) -> None:
    """To a reader of a hundred lines that knows nothing of ours, and to our own."""
    feed.create("&format=parquet")
    with writing(feed.source, TABLES):
        ddls_of_each_kind(feed.source, 0)
        feed.until_written()
        ddls_of_each_kind(feed.source, 1)
    feed.until_written()
    found = rebuilt(feed.directory)
    for name in feed.source.list_collection_names(
        filter={"type": "collection", "name": {"$not": {"$regex": "^system"}}}
    ):
        there = found.get(f"{feed.id}.{name}", [])
        assert sorted(there, key=str) == sorted(feed.source[name].find(), key=str), name
    wrong = feed.wrong(target_uri)
    assert not wrong, "\n".join(wrong)


@pytest.mark.soak
@pytest.mark.since("6.0")
def test_messages_have_the_documents_before_and_after_each_change(feed: Filed, target_uri: str) -> None:
    """They come from change streams then. A table whose images the source does not have stops, and the others go on."""
    configuration = feed.configuration(images="required")
    refused = feed.node.sluice("changefeed", "create", "-", input=configuration)
    assert "has no pre-images, which this option needs" in refused.stderr
    for table in TABLES:
        feed.source.command("collMod", table, changeStreamPreAndPostImages={"enabled": True})
    refused = feed.node.sluice(
        "changefeed", "create", "-", input=feed.configuration(images="required", capture="oplog")
    )
    assert "images: required asks for documents before and after changes" in refused.stderr
    feed.create(images="required")
    with writing(feed.source, TABLES):
        feed.until_written()
        ddls_of_each_kind(feed.source, 0)
    _write_in_a_transaction(feed)
    feed.source["notes"].replace_one({"_id": "row 1"}, {"n": -1})
    feed.source["notes"].delete_one({"_id": "row 1"})
    feed.until_written()
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)
    messages = feed.messages()
    assert judge(messages, feed.marks()) == []
    _judge_images(messages)
    feed.source.command("collMod", "orders", changeStreamPreAndPostImages={"enabled": False})
    feed.source["orders"].update_one({"_id": "row 7"}, {"$set": {"n": -7}})
    until(lambda: "expected the document before" in feed.sluice("table", "list", feed.id), "the table that stops")
    feed.source["notes"].update_one({"_id": "row 7"}, {"$set": {"n": -7}})
    feed.until_written()
    *_, last, mark = feed.messages()
    assert (last["op"], last["ns"], last["before"]["n"]) == ("u", f"{feed.id}.notes", {"$numberInt": "7"})
    assert len(mark["tables"]) == 1, "the table that stopped, with its own position"
    feed.source["orders"].create_index("made while it was stopped")
    feed.source.command("collMod", "orders", changeStreamPreAndPostImages={"enabled": True})
    feed.sluice("table", "recopy", feed.id, f"{feed.id}.orders", "--yes")
    feed.until_written()
    feed.source["orders"].update_one({"_id": "row 7"}, {"$set": {"n": -8}})
    feed.until_written()
    until(lambda: feed.messages()[-1]["tables"] == "all", "the table that is copied anew")
    [again] = feed.messages_of("recopy")
    assert again["skipped"]["from"] < again["skipped"]["to"] == again["pos"]
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)


@pytest.mark.soak
def test_a_table_with_a_text_that_has_no_json_stops_alone_until_it_is_copied_anew(feed: Filed, target_uri: str) -> None:
    feed.create()
    feed.until_written()
    bad = RawBSONDocument(no_utf8({"_id": "bad", "text": "??"}))
    feed.source.command({"insert": "orders", "documents": [bad]})
    until(lambda: "not UTF-8" in feed.sluice("table", "list", feed.id), "the table that stops")
    feed.source["notes"].insert_one({"_id": "behind it"})
    feed.until_written()
    assert feed.messages()[-2]["key"] == {"_id": "behind it"}
    feed.source["orders"].update_one({"_id": "bad"}, {"$set": {"text": "good"}})
    feed.sluice("table", "recopy", feed.id, f"{feed.id}.orders", "--yes")
    until(lambda: feed.messages_of("recopy"), "the table that is copied anew")
    until(lambda: feed.messages()[-1]["tables"] == "all", "the table is as far as the others")
    found = feed.differences(target_uri)
    assert not found, "\n".join(found)


def _write_in_a_transaction(feed: Filed) -> None:
    with feed.client.start_session() as session, session.start_transaction():
        for table in TABLES:
            feed.source[table].insert_one({"_id": "of a transaction"}, session=session)


def _judge_images(messages: list[dict[str, Any]]) -> None:
    """The document before a change is that after the change before it."""
    seen: dict[tuple[str, str], Any] = {}
    kinds: Counter[tuple[str, str]] = Counter()
    for message in messages:
        if message["op"] not in "iuRd":
            continue
        row = message["id"], json.dumps(message["key"])
        assert message["wall"] // 1000 - message["ts"]["t"] in range(-2, 3)
        if row in seen:
            assert message.get("before") == seen[row], message
        seen[row] = message.get("after")
        kinds[message["op"], message["images"]] += 1
        assert ("txn" in message) == (message["key"]["_id"] == "of a transaction")
    assert kinds.keys() == {("i", "after"), ("u", "both"), ("R", "both"), ("d", "before")}


def test_what_is_read_back_from_a_bucket_equals_the_source(
    feed: Filed, bucket: str, s3: FaultyProxy, target_uri: str
) -> None:
    """Though one of ten requests to its server fails."""
    bucketed = Bucketed(feed, bucket, s3)
    bucketed.create()
    bucketed.disturb()
    with writing(feed.source, TABLES):
        ddls_of_each_kind(feed.source, 0)
        bucketed.until_written()
    bucketed.until_written()
    assert bucketed.calm() > 50
    found = bucketed.differences(target_uri)
    assert not found, "\n".join(found)
    assert judge(bucketed.messages(), bucketed.marks()) == []
    assert S3_KEYS["SLUICE_TEST_S3_SECRET"] not in feed.node.log


def test_how_files_are_stored_changes_while_rows_come(feed: Filed, database: str, target_uri: str) -> None:
    feed.create()
    with writing(feed.source, TABLES):
        files = until(lambda: list(feed.directory.glob("data/*/[!.]*")), "the first file")
        assert {path.suffix for path in files} == {".gz"}
        feed.sluice("changefeed", "update", database, "-", "--yes", input=feed.configuration("&compression=none"))
        until(lambda: list(feed.directory.glob("data/*/*.json")), "a file without compression")
        present = json.loads(feed.sluice("changefeed", "query", database, "-o", "json"))
        assert (present["state"], present["version"]) == ("normal", 2)
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)


def test_what_means_nothing_for_messages_is_refused(feed: Filed, database: str) -> None:
    feed.create()
    feed.until_written()
    answer = feed.node.sluice("verify", database)
    assert answer.returncode != 0
    assert "there is nothing to compare" in answer.stderr + answer.stdout
    feed.sluice("changefeed", "pause", database)
    refused = feed.node.sluice("changefeed", "resume", database, "--start", "2026-01-01T00:00:00Z", "--yes")
    assert "writes messages" in refused.stderr
    by_another_name = feed.configuration("&compression=none").replace("127.0.0.1", "localhost")
    feed.sluice("changefeed", "update", database, "-", "--yes", input=by_another_name)
    present = json.loads(feed.sluice("changefeed", "query", database, "-o", "json"))["configuration"]
    changed = yaml.safe_dump({**present, "filter": {"tables": [f"{database}.notes"]}})
    refused = feed.node.sluice("changefeed", "update", database, "-", "--yes", input=changed)
    assert "filter" in refused.stderr
    assert "create another changefeed" in refused.stderr
    other = yaml.safe_dump({**present, "id": f"{database}-2"})
    refused = feed.node.sluice("changefeed", "create", "-", input=other)
    assert "is not empty; name an empty directory" in refused.stderr


_STEPS = (
    *("ddl_applied", "window_committed"),
    *("window_committing", "window_ended", "ddl_recorded", "ddl_executing_recorded", "ddl_executing", "ddl_released"),
)


@pytest.fixture
def mortal(node: Server) -> Iterator[Mortal]:
    yield Mortal(node)
    if "SLUICE_FAILPOINTS" in node._environment:
        Mortal(node).comes_back()


@pytest.mark.parametrize("steps", [_STEPS[:1], _STEPS[1:]], ids=["after a ddl", "at each other step"])
@pytest.mark.soak
def test_a_node_that_is_killed_leaves_files_that_can_be_read(
    feed: Filed, mortal: Mortal, target_uri: str, steps: tuple[str, ...]
) -> None:
    feed.create()
    feed.until_written()
    with writing(feed.source, TABLES):
        for number, step in enumerate(steps):
            mortal.dies_at(step)
            ddls_of_each_kind(feed.source, number)
            mortal.until_dead()
            mortal.comes_back()
            feed.until_written()
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)


@pytest.mark.soak
@pytest.mark.parametrize("step", ["chunks_committing", "chunks_committed"])
def test_a_node_that_is_killed_in_a_copy_copies_again(feed: Filed, mortal: Mortal, target_uri: str, step: str) -> None:
    mortal.dies_at(step)
    mortal.until_ready()
    feed.create()
    feed.source["notes"].delete_many({"n": {"$lt": 100}})
    feed.source["orders"].update_many(
        {"n": {"$lt": 50}}, {"$set": {"text": "changed", "more.deep": [1]}, "$unset": {"n": 1}}
    )
    mortal.until_dead()
    feed.source["notes"].delete_many({"n": {"$lt": 200}})
    feed.source["orders"].update_many({"text": "changed"}, {"$push": {"more.deep": 2}})
    mortal.comes_back()
    ddls_of_each_kind(feed.source, 0)
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)


@pytest.mark.soak
def test_a_directory_that_goes_away_and_comes_back_loses_nothing(feed: Filed, target_uri: str) -> None:
    """As with its file system: what is in its place meanwhile is an empty directory."""
    feed.create()
    feed.until_written()
    aside = feed.directory.with_name("aside")
    with writing(feed.source, TABLES):
        feed.directory.rename(aside)
        feed.directory.mkdir()
        ddls_of_each_kind(feed.source, 0)
        until(lambda: "is its file system mounted" in feed.sluice("changefeed", "query", feed.id), "the error")
        checkpoint = _checkpoint(feed)
        ddls_of_each_kind(feed.source, 1)
        assert _checkpoint(feed) == checkpoint
        shutil.rmtree(feed.directory)
        aside.rename(feed.directory)
        until(lambda: _checkpoint(feed) != checkpoint, "a checkpoint behind the error")
    feed.until_written()
    found = feed.wrong(target_uri)
    assert not found, "\n".join(found)


def _checkpoint(feed: Filed) -> str:
    return str(json.loads(feed.sluice("changefeed", "query", feed.id, "-o", "json"))["checkpoint"])


@pytest.mark.soak
def test_what_a_killed_node_did_not_commit_is_removed(feed: Filed, mortal: Mortal) -> None:
    mortal.dies_at("chunks_committing")
    mortal.until_ready()
    feed.create()
    mortal.until_dead()
    left = feed.uncommitted()
    assert left
    mortal.comes_back()
    until(lambda: not left & feed.uncommitted(), "the removal of what the node left")
    feed.until_written()
    assert judge(feed.messages(), feed.marks()) == []


@pytest.mark.soak
def test_a_reader_that_is_killed_goes_on_where_it_was(feed: Filed, target_uri: str) -> None:
    """`--follow --to` gets kill -9 after ever longer lives, while rows and DDL go on."""
    feed.create()
    read = ("read", feed.uri, "--to", target_uri)
    with writing(feed.source, TABLES):
        for number in range(8):
            ddls_of_each_kind(feed.source, number)
            with subprocess.Popen([str(SLUICE), *read, "--follow"], stderr=subprocess.PIPE, text=True) as reader:
                with suppress(subprocess.TimeoutExpired):
                    _, said = reader.communicate(timeout=1.5 + number / 3)
                    pytest.fail(f"the reader ended: {said}")
                reader.kill()
    feed.until_written()
    assert "written up to" in feed.sluice(*read)
    found = differences(feed.client, feed.id, feed.target, feed.id)
    assert not found, "\n".join(found)
