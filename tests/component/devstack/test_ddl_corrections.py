"""DDL events as MongoDB 6.0 and later tell them. Runs against any MongoDB that SLUICE_TEST_SOURCE names."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bson import Binary
from pymongo import IndexModel, InsertOne, MongoClient
from pymongo.errors import OperationFailure

from tests.component.devstack.watch import Watch, kinds

ID_INDEX = {"v": 2, "key": {"_id": 1}, "name": "_id_"}

IMPLICIT: dict[str, Callable[[Any], object]] = {
    "insert": lambda db: db.a.insert_one({"_id": 1}),
    "upsert": lambda db: db.a.update_one({"_id": 1}, {"$set": {"x": 1}}, upsert=True),
    "replace upsert": lambda db: db.a.replace_one({"_id": 1}, {"x": 1}, upsert=True),
    "findAndModify": lambda db: db.a.find_one_and_update({"_id": 1}, {"$set": {"x": 1}}, upsert=True),
    "bulkWrite": lambda db: db.client.bulk_write([InsertOne(namespace=f"{db.name}.a", document={"_id": 1})]),
}


@pytest.mark.parametrize("write", IMPLICIT.values(), ids=IMPLICIT.keys())
def test_the_first_write_into_a_missing_collection_creates_it_first(
    write: Callable[[Any], object], watch: Watch
) -> None:
    write(watch.db)
    created, inserted = watch.events()
    assert kinds([created, inserted]) == [("create", "a"), ("insert", "a")]
    assert created["operationDescription"] == {"idIndex": ID_INDEX}
    assert bytes(created["collectionUUID"]) == bytes(inserted["collectionUUID"]) == watch.uuid("a")
    assert created["clusterTime"] <= inserted["clusterTime"]


def test_an_update_that_matches_nothing_creates_nothing(watch: Watch) -> None:
    watch.db["a"].update_many({}, {"$set": {"x": 1}})
    watch.db["a"].find_one_and_update({}, {"$set": {"x": 1}})
    watch.db["a"].delete_one({})
    assert watch.events() == []
    assert "a" not in watch.db.list_collection_names()


def test_listing_collections_leaves_nothing_of_one_that_is_dropped_meanwhile(watch: Watch) -> None:
    """Here a listing gave a UUID to a collection that had gone, which then was there again without having been created."""
    generations = range(300)
    over = False

    def look() -> None:
        while not over:
            watch.db.list_collection_names()

    with ThreadPoolExecutor(2) as lookers:
        looks = [lookers.submit(look) for _ in range(2)]
        for number in generations:
            watch.db["a"].insert_one({"_id": number})
            watch.db["a"].drop()
        over = True
    assert all(looking.exception() is None for looking in looks)
    assert kinds(watch.events()) == [("create", "a"), ("insert", "a"), ("drop", "a")] * len(generations)


def test_an_index_on_a_missing_collection_creates_it_first(watch: Watch) -> None:
    watch.db["a"].create_index("x")
    assert kinds(watch.events()) == [("create", "a"), ("createIndexes", "a")]


def test_creation_inside_a_transaction_is_part_of_it(watch: Watch) -> None:
    with watch.client.start_session() as session, session.start_transaction():
        watch.db["a"].insert_one({"_id": 1}, session=session)
        watch.db["a"].insert_one({"_id": 2}, session=session)
    events = watch.events()
    assert kinds(events) == [("create", "a"), ("insert", "a"), ("insert", "a")]
    assert len({event["clusterTime"] for event in events}) == 1
    assert len({event["txnNumber"] for event in events}) == 1
    assert all(event["lsid"] == events[0]["lsid"] for event in events)


def test_an_aborted_transaction_creates_nothing(watch: Watch) -> None:
    with watch.client.start_session() as session:
        session.start_transaction()
        watch.db["a"].insert_one({"_id": 1}, session=session)
        session.abort_transaction()
    assert watch.events() == []
    assert "a" not in watch.db.list_collection_names()


def test_out_fills_a_collection_aside_and_renames_it(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    watch.db["o"].create_index("x", unique=True)
    target = watch.uuid("o")
    watch.events()
    list(watch.db["a"].aggregate([{"$out": "o"}]))
    events = watch.events()
    assert events[0]["operationType"] == "create"
    assert events[0]["ns"]["coll"].startswith("tmp.agg_out.")
    assert kinds(events[-2:]) == [("insert", events[0]["ns"]["coll"]), ("rename", events[0]["ns"]["coll"])]
    assert events[-1]["to"]["coll"] == "o"
    assert bytes(events[-1]["operationDescription"]["dropTarget"]) == target
    assert watch.db["o"].index_information()["x_1"]["unique"] is True


OPTIONS = [
    {"unique": True},
    {"sparse": True},
    {"expireAfterSeconds": 3600},
    {"partialFilterExpression": {"x": {"$gt": 1}}},
    {"hidden": True},
    {"unique": True, "partialFilterExpression": {"x": {"$exists": True}}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_index_events_tell_the_whole_specification(options: dict[str, Any], watch: Watch) -> None:
    watch.db.create_collection("a")
    watch.db["a"].create_index("x", name="named", **options)
    watch.db["a"].drop_index("named")
    spec = {"v": 2, "key": {"x": 1}, "name": "named", **options}
    _, created, dropped = watch.events()
    assert created["operationDescription"] == dropped["operationDescription"] == {"indexes": [spec]}
    assert bytes(created["collectionUUID"]) == bytes(dropped["collectionUUID"]) == watch.uuid("a")


def test_a_collation_is_told_with_all_its_fields(watch: Watch) -> None:
    watch.db.create_collection("a", collation={"locale": "en", "strength": 2})
    watch.db["a"].create_index("x", collation={"locale": "de"})
    watch.db["a"].create_index("y", collation={"locale": "simple"})
    created, german, simple = watch.events()
    for told, locale, strength in (
        (created["operationDescription"]["collation"], "en", 2),
        (created["operationDescription"]["idIndex"]["collation"], "en", 2),
        (german["operationDescription"]["indexes"][0]["collation"], "de", 3),
    ):
        assert (told["locale"], told["strength"], told["caseFirst"], told["backwards"]) == (
            locale,
            strength,
            "off",
            False,
        )
    assert "collation" not in simple["operationDescription"]["indexes"][0]


def test_indexes_built_together_on_documents_are_one_event_and_on_an_empty_collection_several(watch: Watch) -> None:
    watch.db.create_collection("empty")
    watch.db["empty"].create_indexes([IndexModel("x"), IndexModel("y")])
    assert kinds(watch.events()) == [("create", "empty"), ("createIndexes", "empty"), ("createIndexes", "empty")]
    watch.db["full"].insert_one({"x": 1})
    watch.db["full"].create_indexes([IndexModel("x"), IndexModel("y", unique=True)])
    *_, built = watch.events()
    assert [index["name"] for index in built["operationDescription"]["indexes"]] == ["x_1", "y_1"]


def test_indexes_dropped_together_are_an_event_each(watch: Watch) -> None:
    watch.db["a"].create_indexes([IndexModel("x"), IndexModel("y"), IndexModel("z")])
    watch.events()
    watch.db.command("dropIndexes", "a", index=["x_1", "z_1"])
    watch.db.command("dropIndexes", "a", index="*")
    events = watch.events()
    assert [event["operationDescription"]["indexes"][0]["name"] for event in events] == ["x_1", "z_1", "y_1"]


def test_collections_are_found_by_their_names(watch: Watch) -> None:
    for name in ("a", "b", "c"):
        watch.db.create_collection(name)

    def found(condition: Mapping[str, Any]) -> list[str]:
        return [each["name"] for each in watch.db.list_collections(filter=condition)]

    assert found({"name": "b"}) == ["b"]
    assert sorted(found({"name": {"$in": ["c", "a", "x"]}})) == ["a", "c"]
    assert sorted(found({"name": {"$ne": "a"}})) == ["b", "c"]
    assert found({"name": "a", "type": "view"}) == []
    assert sorted(watch.db.list_collection_names()) == ["a", "b", "c"]


def test_indexes_are_listed_in_the_order_of_their_creation(watch: Watch) -> None:
    for key in ("z", "a", "m"):
        watch.db["a"].create_index(key)
    watch.db["a"].rename("b")
    assert [dict(index) for index in watch.db["b"].list_indexes()] == [
        ID_INDEX,
        *({"v": 2, "key": {key: 1}, "name": f"{key}_1"} for key in ("z", "a", "m")),
    ]


def test_an_index_that_exists_already_is_no_event(watch: Watch) -> None:
    watch.db["a"].create_index("x")
    watch.events()
    watch.db["a"].create_index("x")
    watch.db.create_collection("b")
    assert kinds(watch.events()) == [("create", "b")]


def test_a_rename_keeps_the_uuid_and_the_options(watch: Watch) -> None:
    watch.db.create_collection("a", validator={"x": {"$exists": True}})
    uuid = watch.uuid("a")
    watch.db["a"].rename("b")
    *_, renamed = watch.events()
    assert (renamed["operationType"], renamed["to"]) == ("rename", {"db": watch.db.name, "coll": "b"})
    assert renamed["operationDescription"] == {"to": renamed["to"]}
    assert bytes(renamed["collectionUUID"]) == watch.uuid("b") == uuid
    assert watch.db["b"].options()["validator"] == {"x": {"$exists": True}}


def test_a_rename_over_a_collection_is_one_event_that_names_what_it_replaced(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    watch.db["b"].insert_one({"_id": 2})
    replaced = watch.uuid("b")
    watch.events()
    watch.db["a"].rename("b", dropTarget=True)
    (renamed,) = watch.events()
    assert renamed["operationType"] == "rename"
    assert bytes(renamed["operationDescription"]["dropTarget"]) == replaced


def test_a_rename_across_databases_copies(
    watch: Watch, source_client: MongoClient[dict[str, Any]], fresh_database: Any
) -> None:
    origin = source_client[fresh_database()]
    origin["a"].insert_one({"_id": 1})
    origin["a"].create_index("x", unique=True)
    source_client["admin"].command("renameCollection", f"{origin.name}.a", to=f"{watch.db.name}.b")
    events = watch.events()
    assert [event["operationType"] for event in events] == ["create", "createIndexes", "insert", "rename"]
    assert len({bytes(event["collectionUUID"]) for event in events}) == 1
    assert events[-1]["to"]["coll"] == "b"
    assert "a" not in origin.list_collection_names()
    assert watch.db["b"].index_information()["x_1"]["unique"] is True


def test_views_have_no_uuid_and_tell_their_definition(watch: Watch) -> None:
    watch.db.create_collection("v", viewOn="a", pipeline=[{"$match": {"x": 1}}])
    watch.db.command("collMod", "v", viewOn="b", pipeline=[])
    assert next(iter(watch.db.list_collections(filter={"name": "v"})))["options"] == {"viewOn": "b", "pipeline": []}
    assert "uuid" not in next(iter(watch.db.list_collections(filter={"name": "v"})))["info"]
    watch.db["v"].drop()
    created, modified, dropped = (event for event in watch.events() if event["ns"]["coll"] == "v")
    assert [event["operationType"] for event in (created, modified, dropped)] == ["create", "modify", "drop"]
    assert created["operationDescription"] == {"viewOn": "a", "pipeline": [{"$match": {"x": 1}}]}
    assert modified["operationDescription"] == {"viewOn": "b", "pipeline": []}
    assert not any("collectionUUID" in event for event in (created, modified, dropped))


def test_a_stream_without_expanded_events_shows_no_views(watching: Callable[..., Watch]) -> None:
    watch = watching(show_expanded_events=False)
    watch.db.create_collection("v", viewOn="a", pipeline=[])
    watch.db["v"].drop()
    assert watch.events() == []


def test_coll_mod_tells_what_stood_before(watch: Watch) -> None:
    watch.db["a"].create_index("x", expireAfterSeconds=60)
    watch.events()
    watch.db.command("collMod", "a", index={"keyPattern": {"x": 1}, "expireAfterSeconds": 90})
    watch.db.command("collMod", "a", index={"name": "x_1", "hidden": True})
    watch.db.command("collMod", "a", validator={"y": 1}, validationLevel="moderate")
    ttl, hidden, validator = watch.events()
    assert {event["operationType"] for event in (ttl, hidden, validator)} == {"modify"}
    assert ttl["operationDescription"] == {"index": {"name": "x_1", "expireAfterSeconds": 90}}
    assert ttl["stateBeforeChange"]["indexOptions"] == {"expireAfterSeconds": 60}
    assert hidden["operationDescription"] == {"index": {"name": "x_1", "hidden": True}}
    assert hidden["stateBeforeChange"]["indexOptions"] == {"hidden": False}
    assert validator["operationDescription"]["validator"] == {"y": 1}
    assert bytes(validator["stateBeforeChange"]["collectionOptions"]["uuid"]) == watch.uuid("a")
    assert watch.db["a"].index_information()["x_1"]["hidden"] is True


def test_coll_mod_changes_a_capped_collections_size(watch: Watch) -> None:
    watch.db.create_collection("a", capped=True, size=4096)
    watch.db.command("collMod", "a", cappedSize=8192, cappedMax=10)
    _, modified = watch.events()
    assert modified["operationDescription"] == {"cappedSize": 8192, "cappedMax": 10}
    assert (watch.db["a"].options()["size"], watch.db["a"].options()["max"]) == (8192, 10)


def test_drop_database_drops_each_collection_first(watch: Watch) -> None:
    for coll in ("a", "b"):
        watch.db[coll].insert_one({"_id": 1})
    watch.events()
    with watch.client.watch(show_expanded_events=True) as stream:
        watch.client.drop_database(watch.db.name)
        seen: list[tuple[str, str | None]] = []
        while not seen or seen[-1][0] != "dropDatabase":
            event = stream.next()
            if event["ns"]["db"] == watch.db.name:
                seen.append((event["operationType"], event["ns"].get("coll")))
    assert sorted(seen[:-1]) == [("drop", "a"), ("drop", "b"), ("drop", "end1")]


def test_dropping_what_is_not_there_is_no_event(watch: Watch) -> None:
    watch.db["a"].drop()
    watch.client.drop_database(f"{watch.db.name}_missing")
    assert watch.events() == []


def test_measurements_of_a_time_series_collection_are_not_shown(watch: Watch) -> None:
    watch.db.create_collection("a", timeseries={"timeField": "t"})
    watch.db.command("insert", "a", documents=[{"_id": 1, "t": watch.db.command("hello")["localTime"]}])
    assert [event["operationType"] for event in watch.events() if event["ns"]["coll"] == "a"] == ["create"]
    listed = next(iter(watch.db.list_collections(filter={"name": "a"})))
    assert (listed["type"], "uuid" in listed["info"]) == ("timeseries", False)


def test_ddl_and_writes_stand_in_the_order_in_which_they_took_effect(watch: Watch) -> None:
    """Beside each other writers insert, drop and rename; read in order, each event fits the catalog that the ones before it made."""

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(120):
            coll = watch.db[choose.choice("abc")]
            match choose.randrange(6):
                case 0:
                    coll.drop()
                case 1:
                    with contextlib.suppress(OperationFailure):
                        coll.rename(choose.choice("abc"), dropTarget=True)
                case _:
                    coll.insert_one({})

    with ThreadPoolExecutor(6) as workers:
        list(workers.map(work, range(6)))
    catalog: dict[str, bytes] = {}
    for event in watch.events():
        name, uuid = event["ns"]["coll"], bytes(event["collectionUUID"])
        match event["operationType"]:
            case "create":
                assert name not in catalog
                catalog[name] = uuid
            case "insert":
                assert catalog[name] == uuid
            case "drop":
                assert catalog.pop(name) == uuid
            case "rename":
                replaced = event["operationDescription"].get("dropTarget")
                assert catalog.get(event["to"]["coll"]) == (None if replaced is None else bytes(replaced))
                assert catalog[name] == uuid
                catalog[event["to"]["coll"]] = catalog.pop(name)
    assert catalog == {
        name: watch.uuid(name) for name in watch.db.list_collection_names() if not name.startswith("end")
    }


OTHER = Binary(b"0123456789abcdef", 4)
REFUSED: dict[str, dict[str, Any]] = {
    "drop": {"drop": "a"},
    "collMod": {"collMod": "a", "validator": {}},
    "createIndexes": {"createIndexes": "a", "indexes": [{"key": {"x": 1}, "name": "x_1"}]},
    "dropIndexes": {"dropIndexes": "a", "index": "*"},
    "find": {"find": "a"},
    "aggregate": {"aggregate": "a", "pipeline": [], "cursor": {}},
}


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED.keys())
def test_a_command_meant_for_another_collection_is_refused(command: dict[str, Any], watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    watch.events()
    with pytest.raises(OperationFailure) as refused:
        watch.db.command({**command, "collectionUUID": OTHER})
    assert refused.value.code == 361
    assert refused.value.details is not None
    assert (refused.value.details["expectedCollection"], refused.value.details["actualCollection"]) == ("a", None)
    assert watch.db.command({**command, "collectionUUID": Binary(watch.uuid("a"), 4)})["ok"] == 1.0


@pytest.mark.parametrize(
    "command",
    [
        {"insert": "a", "documents": [{"_id": 2}]},
        {"update": "a", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
        {"delete": "a", "deletes": [{"q": {}, "limit": 0}]},
    ],
    ids=str,
)
def test_a_write_meant_for_a_renamed_collection_is_refused_and_told_its_name(
    command: dict[str, Any], watch: Watch
) -> None:
    watch.db["a"].insert_one({"_id": 1})
    meant = watch.uuid("a")
    watch.db["a"].rename("b")
    watch.db["a"].insert_one({"_id": 1})
    watch.events()
    reply = watch.db.command({**command, "collectionUUID": Binary(meant, 4)}, check=False)
    assert (reply["writeErrors"][0]["code"], reply["writeErrors"][0]["actualCollection"]) == (361, "b")
    assert watch.events() == []


def test_a_bulk_write_meant_for_another_collection_is_refused(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    watch.events()
    reply = watch.client["admin"].command(
        {
            "bulkWrite": 1,
            "ops": [{"insert": 0, "document": {"_id": 2}}],
            "nsInfo": [{"ns": f"{watch.db.name}.a", "collectionUUID": OTHER}],
        }
    )
    assert (reply["nErrors"], reply["cursor"]["firstBatch"][0]["code"]) == (1, 361)
    assert watch.events() == []


def test_a_rename_of_another_collection_is_refused(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    names = {"renameCollection": f"{watch.db.name}.a", "to": f"{watch.db.name}.b"}
    with pytest.raises(OperationFailure) as refused:
        watch.client["admin"].command({**names, "collectionUUID": OTHER})
    assert refused.value.code == 361
    assert watch.client["admin"].command({**names, "collectionUUID": Binary(watch.uuid("a"), 4)})["ok"] == 1.0
