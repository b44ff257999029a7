"""A row that the target refuses, by a real processor: its letter, its later changes, and a user's request while its table is quiet."""

from __future__ import annotations

import pytest
from pymongo import ASCENDING

from admin.desired.desired_store import DesiredStore
from changefeed.capture import Capture
from changefeed.records import TableVerb
from changefeed.table import TableId, TableName
from sink.mongodb.letters.dead_letter import MOST_LETTERS
from sink.mongodb.letters.open_letters import LetterBox
from sink.mongodb.letters.stored_letters import StoredLetters
from tests.component.processor.conftest import ReplicatingCluster


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
