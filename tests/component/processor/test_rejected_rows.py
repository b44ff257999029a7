"""A row that the target refuses, by a real processor: its letter, its later changes, and a user's request while its table is quiet; or the
stop of the whole changefeed, if a user prefers that.
"""

from __future__ import annotations

import re

import pytest
from pymongo import ASCENDING

from admin.desired.desired_store import DesiredStore
from changefeed.capture import Capture
from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId, TableVerb
from changefeed.table import TableId, TableName
from sink.mongodb.letters.dead_letter import MOST_LETTERS
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.letters.stored_letters import StoredLetters
from tests.component.processor.conftest import ReplicatingCluster

_TOO_LARGE = re.compile("document too large|BSONObj size: .* is invalid|larger than")


@pytest.mark.soak
@pytest.mark.parametrize("capture", [Capture.CHANGE_STREAM, Capture.OPLOG])
def test_a_quiet_table_s_row_is_tried_again_when_a_user_requests_it(
    standing: ReplicatingCluster, database: str, capture: Capture
) -> None:
    rows, there = standing.source[database]["rows"], standing.target[f"{database}_to"]["rows"]
    name = TableName(f"{database}_to", "rejected")
    rows.insert_one({"_id": 1})
    there.create_index([("a", ASCENDING), ("b", ASCENDING)])
    there.insert_one({"_id": 1})
    feed = standing.create(f"refused-{capture}", database, capture=capture, dead_letter=str(name))
    stored = StoredLetters(standing.target, LetterBox(collection=name, changefeed=feed))
    standing.until(lambda: standing.began(feed), "the beginning")

    rows.insert_one({"_id": 7, "a": [1, 2], "b": [1, 2]})
    rows.update_one({"_id": 1}, {"$set": {"v": 1}})
    [letter] = standing.until(lambda: list(stored.of("x", ())) or list(stored.of(None, ())), "the letter")
    assert (letter.table, letter.key, letter.type) == (f"{database}.rows", '{"_id": 7}', "insert")
    standing.until(lambda: there.find_one({"_id": 1}) == {"_id": 1, "v": 1}, "the other row")

    rows.update_one({"_id": 7}, {"$set": {"n": 1}})
    standing.until(lambda: [each.tries for each in stored.of(None, ())] == [2], "another try")

    there.drop_index([("a", ASCENDING), ("b", ASCENDING)])
    stored.request(list(stored.of(None, ())))
    standing.until(lambda: not list(stored.of(None, ())), "the end of the letter")
    assert there.find_one({"_id": 7}) == rows.find_one({"_id": 7})
    rows.update_one({"_id": 7}, {"$set": {"n": 2}})
    standing.until(lambda: there.find_one({"_id": 7}) == rows.find_one({"_id": 7}), "a change as to any row")
    standing.until(lambda: standing.target[name.db][name.coll].count_documents({}) == 0, "the end of the request")


def test_a_table_with_too_many_letters_stops_and_goes_on_when_its_rows_are_tried_again(
    standing: ReplicatingCluster, database: str
) -> None:
    source, there = standing.source[database], standing.target[f"{database}_to"]
    name = TableName(f"{database}_to", "rejected")
    for table in ("rows", "others"):
        source.create_collection(table)
        there.create_collection(table)
    there["rows"].create_index([("a", ASCENDING), ("b", ASCENDING)])
    feed = standing.create("too-many", database, dead_letter=str(name))
    stored = StoredLetters(standing.target, LetterBox(collection=name, changefeed=feed))
    standing.until(lambda: standing.began(feed), "the beginning")

    source["rows"].insert_many([{"_id": number, "a": [1, 2], "b": [1, 2]} for number in range(MOST_LETTERS + 1)])
    store = DesiredStore(standing.etcd, standing.layout)
    [info] = source.list_collections(filter={"name": "rows"})
    table = TableId(info["info"]["uuid"].hex())
    standing.until(lambda: standing.etcd.range(standing.layout.stragglers(feed)).items, "the stop")
    assert len(list(stored.of(None, ()))) == MOST_LETTERS
    source["others"].insert_one({"_id": 1})
    standing.until(lambda: there["others"].find_one() == {"_id": 1}, "a row of another table")

    there["rows"].drop_index([("a", ASCENDING), ("b", ASCENDING)])
    stored.request(list(stored.of(None, ())))
    store.ask(feed, table, TableVerb.RESUME)
    standing.until(lambda: not list(stored.of(None, ())), "the end of all letters")
    standing.until(lambda: there["rows"].count_documents({}) == MOST_LETTERS + 1, "all rows")


@pytest.mark.soak
def test_rows_that_hashed_fields_make_too_large_have_letters_until_they_are_small_enough(
    standing: ReplicatingCluster, database: str
) -> None:
    """A number has 4 bytes at the source, and 69 at the target. One row comes with the copy, one is inserted, one grows by an update."""
    source, there = standing.source[database], standing.target[f"{database}_to"]
    name = TableName(f"{database}_to", "rejected")
    numbers = list(range(240_000))
    source["rows"].insert_many([{"_id": "copied", "hashed": numbers}, {"_id": "grown", "hashed": numbers[:180_000]}])
    columns = [{"tables": [f"{database}.rows"], "hash": ["hashed", "more"], "hash_key": "${env:PATH}"}]
    feed = standing.create("larger", database, start="initial", columns=columns, dead_letter=str(name))
    letters = StoredLetters(standing.target, LetterBox(collection=name, changefeed=feed))
    standing.until(lambda: there["rows"].find_one({"_id": "grown"}), "the copy")

    source["rows"].insert_many([{"_id": 1}, {"_id": "inserted", "hashed": numbers}, {"_id": 2}])
    source["rows"].update_one({"_id": "grown"}, {"$set": {"more": numbers[180_000:]}})
    standing.until(lambda: len(list(letters.of(None, ()))) == 3, "the letters")
    found = {letter.key: letter for letter in letters.of(None, ())}
    assert len(found) == 3
    for key in ("copied", "inserted", "grown"):
        assert _TOO_LARGE.search(found[f'{{"_id": "{key}"}}'].error)
    assert {row["_id"] for row in there["rows"].find({}, {"_id": 1})} == {1, 2, "grown"}
    assert standing.state(feed) is State.NORMAL

    source["rows"].update_many({"hashed": {"$exists": True}}, {"$set": {"hashed": [], "more": None}})
    standing.until(lambda: not list(letters.of(None, ())), "the end of the letters")
    sort = [("_id", ASCENDING)]
    assert list(there["rows"].find(sort=sort)) == list(source["rows"].find(sort=sort))


def test_a_refused_row_stops_the_whole_changefeed_if_a_user_says_so_until_the_cause_is_gone(
    standing: ReplicatingCluster, database: str
) -> None:
    source, there = standing.source[database], standing.target[f"{database}_to"]
    for table in ("rows", "others"):
        source.create_collection(table)
        there.create_collection(table)
    there["rows"].create_index([("a", ASCENDING), ("b", ASCENDING)])
    feed = standing.create("all-or-nothing", database, on_rejected="stop_changefeed")
    standing.until(lambda: standing.began(feed), "the beginning")

    source["rows"].insert_one({"_id": 1})
    source["others"].insert_one({"_id": 1})
    standing.until(lambda: there["rows"].find_one() and there["others"].find_one(), "the rows before")
    source["rows"].insert_many([{"_id": 2}, {"_id": 7, "a": [1, 2], "b": [1, 2]}, {"_id": 8}])
    standing.until(lambda: _rests(standing, feed), "the stop")
    assert standing.state(feed) is State.FAILED
    assert standing.error(feed).startswith("row_rejected: ")
    remedy = "remove the cause at the target and resume the table (with on_rejected: stop_changefeed, the changefeed)"
    for part in ("'_id': 7", f"{database}_to.rows answers", "(code 171)", remedy):
        assert part in standing.error(feed)
    assert standing.stragglers(feed) == {}, "no table is stopped by itself"
    source["rows"].update_one({"_id": 1}, {"$set": {"while": "stopped"}})
    source["others"].insert_one({"_id": 2})

    standing.change(feed)
    standing.until(
        lambda: standing.obeyed(feed) and _rests(standing, feed), "another stop, as the cause is still there"
    )
    assert there["rows"].find_one({"_id": 7}) is None

    there["rows"].drop_index([("a", ASCENDING), ("b", ASCENDING)])
    standing.change(feed)
    standing.equal(database)
    assert standing.state(feed) is State.NORMAL
    assert standing.error(feed) == ""


def _rests(standing: ReplicatingCluster, feed: ChangefeedId) -> bool:
    """Until a user acts: no node writes anything."""
    status = standing.status(feed)
    return status is not None and status.still
