"""`local.oplog.rs` as a tailer of MongoDB's oplog reads it. Runs against any MongoDB that SLUICE_TEST_SOURCE names."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import CursorType, IndexModel

from tests.component.devstack.watch import Watch


def test_ddl_entries_have_the_shapes_of_mongodb(watch: Watch) -> None:
    before = watch.now()
    watch.db.create_collection("a", capped=True, size=4096)
    watch.db.create_collection("b")
    watch.db["b"].create_index("x", unique=True)
    watch.db["b"].drop_index("x_1")
    watch.db.command("collMod", "b", validator={"x": 1})
    watch.db["a"].rename("c")
    watch.db["b"].drop()
    create, plain, index, unindex, modify, rename, drop = (entry for entry in watch.oplog(before) if entry["op"] == "c")
    spec = {"v": 2, "key": {"x": 1}, "name": "x_1", "unique": True}
    assert (create["o"]["create"], create["o"]["capped"], create["o"]["size"]) == ("a", True, 4096)
    assert plain["o"] == {"create": "b", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    assert index["o"] == {"createIndexes": "b", **spec}
    assert (unindex["o"], unindex["o2"]) == ({"dropIndexes": "b", "index": "x_1"}, spec)
    assert (modify["o"]["collMod"], modify["o"]["validator"]) == ("b", {"x": 1})
    assert rename["o"]["renameCollection"] == f"{watch.db.name}.a"
    assert rename["o"]["to"] == f"{watch.db.name}.c"
    assert drop["o"]["drop"] == "b"
    assert all(entry["ns"] == f"{watch.db.name}.$cmd" for entry in (create, index, unindex, modify, rename, drop))
    assert bytes(create["ui"]) == bytes(rename["ui"]) == watch.uuid("c")
    assert {"ts", "wall", "t", "v"} <= create.keys()


def test_an_index_build_on_documents_is_committed_at_once(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    before = watch.now()
    watch.db["a"].create_indexes([IndexModel("x"), IndexModel("y", sparse=True)])
    (built,) = (entry["o"] for entry in watch.oplog(before) if "commitIndexBuild" in entry["o"])
    assert built["commitIndexBuild"] == "a"
    assert [index["name"] for index in built["indexes"]] == ["x_1", "y_1"]
    assert built["indexes"][1]["sparse"] is True


def test_a_transaction_is_one_entry_with_its_ddl_inside(watch: Watch) -> None:
    before = watch.now()
    with watch.client.start_session() as session, session.start_transaction():
        watch.db["a"].insert_one({"_id": 1}, session=session)
        watch.db["a"].delete_one({"_id": 1}, session=session)
    (whole,) = watch.oplog(before)
    assert (whole["op"], whole["ns"]) == ("c", "admin.$cmd")
    operations: list[dict[str, Any]] = whole["o"]["applyOps"]
    assert [operation["op"] for operation in operations] == ["c", "i", "d"]
    assert operations[0]["o"]["create"] == "a"
    assert {"lsid", "txnNumber"} <= whole.keys()


def test_a_view_is_a_document_of_system_views(watch: Watch) -> None:
    before = watch.now()
    watch.db.create_collection("v", viewOn="a", pipeline=[])
    watch.db["v"].drop()
    created, dropped = (entry for entry in watch.oplog(before) if entry["ns"] == f"{watch.db.name}.system.views")
    assert (created["op"], created["o"]) == ("i", {"_id": f"{watch.db.name}.v", "viewOn": "a", "pipeline": []})
    assert (dropped["op"], dropped["o"]) == ("d", {"_id": f"{watch.db.name}.v"})


def test_the_tailed_oplog_shows_the_same(watch: Watch) -> None:
    before = watch.now()
    name = watch.db.name
    tail = watch.client["local"]["oplog.rs"].find({"ts": {"$gt": before}}, cursor_type=CursorType.TAILABLE_AWAIT)
    watch.db["a"].create_index("x")
    with watch.client.start_session() as session, session.start_transaction():
        watch.db["a"].insert_one({"_id": 1}, session=session)
        watch.db["a"].insert_one({"_id": 2}, session=session)
    watch.db["a"].drop()
    seen: list[str] = []
    while not seen or seen[-1] != "drop":
        entry = tail.next()
        if name in entry["ns"] or name in repr(entry["o"].get("applyOps")):
            seen.append(next(iter(entry["o"])))
    assert seen == ["create", "createIndexes", "applyOps", "drop"]


def test_the_ends_of_the_oplog_are_its_first_and_last_entry(watch: Watch) -> None:
    oplog = watch.client["local"]["oplog.rs"]
    watch.db["a"].insert_one({"_id": 1})
    first = oplog.find_one({}, {"ts": 1}, sort=[("$natural", 1)])
    last = oplog.find_one({}, {"ts": 1}, sort=[("$natural", -1)])
    now = watch.now()
    everything = [entry["ts"] for entry in oplog.find({}, {"ts": 1})]
    assert first is not None
    assert last is not None
    assert first["ts"] == min(everything)
    assert now <= max(everything)
    assert min(everything) < last["ts"] <= max(everything)


@pytest.mark.parametrize(
    ("update", "fields"),
    [
        ({"$set": {"f": 0, "a.1": 0}}, ["a", "f"]),
        ({"$set": {"z": 1, "b": 2, "e": 3}}, ["e", "b", "z"]),
        ({"$set": {"b.10": 1, "b.9": 2}}, ["b"]),
        ({"$set": {"b": 1}, "$push": {"a": 2}}, ["a", "b"]),
        ({"$rename": {"e": "y"}, "$set": {"z": 2}}, ["y", "z"]),
    ],
)
def test_a_modifier_update_appends_new_fields_by_name_and_says_so(
    watch: Watch, update: dict[str, Any], fields: list[str]
) -> None:
    """Those that were there come first in the event, and stay where they were in the document."""
    watch.db["a"].insert_one({"_id": 1, "e": 0})
    watch.db["a"].update_one({"_id": 1}, update)
    after = watch.db["a"].find_one({})
    told = watch.events()[-1]["updateDescription"]["updatedFields"]
    assert after is not None
    assert list(told) == fields
    assert [name for name in after if name in fields and name != "e"] == [name for name in fields if name != "e"]
    if isinstance(after.get("b"), dict):
        assert list(after["b"]) == list(told["b"]) == ["9", "10"]
