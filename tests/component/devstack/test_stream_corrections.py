"""Resume tokens, starts and waits of change streams as MongoDB has them. Runs against any MongoDB that SLUICE_TEST_SOURCE names."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from changefeed.cluster_time import ClusterTime
from source.resume_token import TokenType, decode_token
from tests.component.devstack.watch import Event, Watch, kinds


def token(event: Event) -> str:
    return str(event["_id"]["_data"])


def mixture(watch: Watch) -> list[Event]:
    """Rows, DDL and a transaction."""
    watch.db["a"].insert_many([{"_id": 1}, {"_id": "s"}, {"_id": {"x": 1}}, {"_id": 2.5}, {"_id": None}])
    watch.db["a"].create_index("x")
    with watch.client.start_session() as session, session.start_transaction():
        for number in range(70):
            watch.db["b"].insert_one({"_id": number}, session=session)
        watch.db["a"].update_one({"_id": 1}, {"$set": {"x": 1}}, session=session)
    watch.db["b"].rename("c")
    watch.db["a"].delete_one({"_id": 1})
    return watch.events()


def test_tokens_sort_as_their_events_also_inside_a_transaction(watch: Watch) -> None:
    tokens = [token(event) for event in mixture(watch)]
    assert len(tokens) > 80
    assert tokens == sorted(set(tokens))


def test_a_token_holds_the_time_and_the_table_of_its_event(watch: Watch) -> None:
    for event in mixture(watch):
        decoded = decode_token(token(event))
        assert decoded.cluster_ts == ClusterTime.from_bson(event["clusterTime"])
        assert decoded.type is TokenType.EVENT
        assert decoded.table == bytes(event["collectionUUID"]).hex()


def test_an_event_has_one_token_in_all_streams(watch: Watch) -> None:
    start = watch.now()
    shown = {token(event) for event in mixture(watch)}
    rows_only = watch.again(start_at_operation_time=start, show_expanded_events=False)
    looked_up = watch.again(start_at_operation_time=start, full_document="updateLookup")
    assert {token(event) for event in rows_only if not event["ns"]["coll"].startswith("end")} < shown
    assert {token(event) for event in looked_up if not event["ns"]["coll"].startswith("end")} == shown


@pytest.mark.parametrize("way", ["resume_after", "start_after"])
def test_a_stream_goes_on_after_the_event_of_its_token(way: str, watch: Watch) -> None:
    events = mixture(watch)
    for at in (0, 3, 8, 40, len(events) - 1):
        following = watch.again(**{way: events[at]["_id"]})
        assert [token(event) for event in following[:-2]] == [token(event) for event in events[at + 1 :]]


def test_a_start_time_is_inclusive(watch: Watch) -> None:
    events = mixture(watch)
    for at in (0, 3, 8):
        following = watch.again(start_at_operation_time=events[at]["clusterTime"])
        assert token(following[0]) == next(
            token(event) for event in events if event["clusterTime"] == events[at]["clusterTime"]
        )


def test_a_high_water_mark_promises_only_what_is_before_it(watch: Watch) -> None:
    """The next event may come at exactly its time, and resuming from it shows that event."""
    with watch.db.watch(max_await_time_ms=200) as stream:
        mark = stream.resume_token
        assert mark is not None
        assert decode_token(mark["_data"]).type is TokenType.HIGH_WATER_MARK
    watch.db["a"].insert_one({"_id": 1})
    created, inserted = watch.events()
    assert mark["_data"] < token(created)
    assert kinds(watch.again(resume_after=mark))[:2] == [("create", "a"), ("insert", "a")]
    assert inserted["clusterTime"] >= created["clusterTime"]


def test_at_the_end_of_the_data_the_mark_follows_the_oplog(watch: Watch) -> None:
    with watch.db.watch([{"$match": {"operationType": "nothing"}}], max_await_time_ms=100) as stream:
        watch.client["admin"].command("appendOplogNote", 1, data={"note": "one"})
        noted = ClusterTime.from_bson(watch.now())
        deadline = time.monotonic() + 20
        while decode_token(str((stream.resume_token or {})["_data"])).cluster_ts < noted:
            assert stream.try_next() is None
            assert time.monotonic() < deadline
        assert decode_token(str((stream.resume_token or {})["_data"])).type is TokenType.HIGH_WATER_MARK


def test_the_post_batch_token_never_passes_an_event_that_was_not_shown(watch: Watch) -> None:
    """Writers on many collections take their times before they are readable."""
    ended = threading.Event()

    def write(coll: str) -> None:
        for number in range(150):
            watch.db[coll].insert_one({"_id": number})
        if coll == "w0":
            ended.set()

    writers = [threading.Thread(target=write, args=(f"w{index}",)) for index in range(4)]
    marks: list[str] = []
    shown: list[str] = []
    with watch.db.watch(max_await_time_ms=50, batch_size=7) as stream:
        for writer in writers:
            writer.start()
        while len(shown) < 600:
            event = stream.try_next()
            if event is not None:
                assert not marks or token(dict(event)) > marks[-1]
                shown.append(token(dict(event)))
            else:
                marks.append(str((stream.resume_token or {})["_data"]))
        for writer in writers:
            writer.join()
    assert ended.is_set()
    assert shown == sorted(shown)
    assert marks == sorted(marks)


def test_a_note_moves_the_time_and_shows_no_event(watch: Watch) -> None:
    before = watch.now()
    reply = watch.client["admin"].command("appendOplogNote", 1, data={"msg": "sluice"})
    assert reply["operationTime"] > before
    assert watch.events() == []
    with pytest.raises(OperationFailure, match="admin database"):
        watch.db.command("appendOplogNote", 1, data={})


def test_asking_for_the_time_does_not_move_it(watch: Watch) -> None:
    """Ten questions, at most the one note that the idle server itself writes meanwhile."""
    assert len({watch.now() for _ in range(10)}) <= 2


def test_only_one_way_to_say_where_to_start_is_taken(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    events = watch.events()
    with pytest.raises(OperationFailure) as refused:
        watch.db.aggregate(
            [{"$changeStream": {"resumeAfter": events[0]["_id"], "startAtOperationTime": events[0]["clusterTime"]}}]
        )
    assert refused.value.code == 40674


def test_an_invalidate_stands_after_its_drop_and_only_start_after_takes_it(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    with watch.db["a"].watch() as stream:
        watch.db["a"].drop()
        dropped, invalidated = stream.next(), stream.next()
    assert (dropped["operationType"], invalidated["operationType"]) == ("drop", "invalidate")
    assert invalidated["_id"]["_data"] > dropped["_id"]["_data"]
    assert decode_token(invalidated["_id"]["_data"]).from_invalidate
    with pytest.raises(OperationFailure) as refused:
        watch.db["a"].watch(resume_after=invalidated["_id"])
    assert refused.value.code == 260
    with watch.db["a"].watch(start_after=invalidated["_id"]) as stream:
        watch.db["a"].insert_one({"_id": 2})
        assert stream.next()["operationType"] == "insert"


def test_system_databases_are_not_shown(watch: Watch, database: str) -> None:
    with watch.client.watch(show_expanded_events=True, max_await_time_ms=200) as stream:
        watch.client["config"][database].insert_one({"_id": 1})
        watch.client["config"].drop_collection(database)
        watch.db["a"].insert_one({"_id": 1})
        seen: list[tuple[str, str | None]] = []
        while ("insert", "a") not in seen:
            event = stream.next()
            seen.append((event["operationType"], event["ns"].get("coll")))
    assert all(coll != database for _, coll in seen)


def test_a_dotted_name_is_told_apart_from_a_path(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1, "a": {"b": 1}, "list": [{}]})
    watch.events()
    dotted = {"$replaceWith": {"$setField": {"field": "a.b", "input": "$$ROOT", "value": 2}}}
    watch.db["a"].update_one({"_id": 1}, [dotted])
    watch.db["a"].update_one({"_id": 1}, {"$set": {"a.b": 3}})
    watch.db["a"].update_one({"_id": 1}, {"$set": {"o": {}}})
    watch.db["a"].update_one({"_id": 1}, {"$set": {"o.0": 1}})
    named, nested, _, numeric = (event["updateDescription"] for event in watch.events())
    assert (named["updatedFields"], named["disambiguatedPaths"]) == ({"a.b": 2}, {"a.b": ["a.b"]})
    assert (nested["updatedFields"], nested["disambiguatedPaths"]) == ({"a.b": 3}, {})
    assert (numeric["updatedFields"], numeric["disambiguatedPaths"]) == ({"o.0": 1}, {"o.0": ["o", "0"]})


def test_a_stream_waits_for_what_matches(watch: Watch) -> None:
    """Other writes do not end its getMore before its time."""
    open_stream = {"aggregate": "a", "pipeline": [{"$changeStream": {}}], "cursor": {}}
    cursor = watch.db.command(open_stream)["cursor"]["id"]
    writing = threading.Event()

    def write() -> None:
        while not writing.wait(0.02):
            watch.db["other"].insert_one({})

    writer = threading.Thread(target=write)
    writer.start()
    began = time.monotonic()
    reply = watch.db.command({"getMore": cursor, "collection": "a", "maxTimeMS": 400})
    waited = time.monotonic() - began
    writing.set()
    writer.join()
    assert reply["cursor"]["nextBatch"] == []
    assert waited > 0.35
    watch.client["admin"].command({"killCursors": "a", "cursors": [cursor]}, check=False)


def test_a_killed_stream_is_gone(watch: Watch) -> None:
    cursor = watch.db.command({"aggregate": "a", "pipeline": [{"$changeStream": {}}], "cursor": {}})["cursor"]["id"]
    assert watch.db.command({"killCursors": "a", "cursors": [cursor]})["cursorsKilled"] == [cursor]
    with pytest.raises(OperationFailure) as gone:
        watch.db.command({"getMore": cursor, "collection": "a"})
    assert gone.value.code == 43


def test_a_snapshot_read_holds_exactly_what_was_written_up_to_its_time(watch: Watch) -> None:
    """Beside a writer: the documents read are those whose inserts are at or before `atClusterTime`, no more, no fewer."""
    start = watch.now()
    stop = threading.Event()

    def write() -> None:
        coll = watch.db["a"].with_options(write_concern=WriteConcern("majority"))
        number = 0
        while not stop.is_set():
            coll.insert_one({"_id": number})
            number += 1

    watch.db.create_collection("a")
    writer = threading.Thread(target=write)
    writer.start()
    reads: list[dict[str, Any]] = [
        watch.db.command({"find": "a", "batchSize": 100_000, "readConcern": ReadConcern("snapshot").document})["cursor"]
        for _ in range(20)
    ]
    stop.set()
    writer.join()
    watch.events()
    inserted = [event for event in watch.again(start_at_operation_time=start) if kinds([event]) == [("insert", "a")]]
    for read in reads:
        expected = {event["documentKey"]["_id"] for event in inserted if event["clusterTime"] <= read["atClusterTime"]}
        assert {document["_id"] for document in read["firstBatch"]} == expected


def test_a_start_in_the_future_shows_nothing_before_it(watch: Watch) -> None:
    watch.db["a"].insert_one({"_id": 1})
    now = watch.now()
    ahead = Timestamp(now.time + 3, 0)
    with watch.db.watch(start_at_operation_time=ahead, max_await_time_ms=200) as stream:
        watch.db["a"].insert_one({"_id": 2})
        deadline = time.monotonic() + 20
        while watch.now() < ahead:
            assert stream.try_next() is None
            assert time.monotonic() < deadline
        watch.db["a"].insert_one({"_id": 3})
        assert stream.next()["documentKey"] == {"_id": 3}


def test_fragments_of_a_large_event_have_tokens_of_their_own(watch: Watch) -> None:
    watch.db.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    watch.db["a"].insert_one({"_id": 1, "text": "x" * 9_000_000})
    options: dict[str, Any] = {"full_document_before_change": "required", "max_await_time_ms": 200}
    split: list[dict[str, Any]] = [{"$changeStreamSplitLargeEvent": {}}]
    with watch.db["a"].watch(split, **options) as stream:
        watch.db["a"].update_one({"_id": 1}, {"$set": {"text": "y" * 9_000_000}})
        fragments = [stream.next()]
        while fragments[-1]["splitEvent"]["fragment"] < fragments[-1]["splitEvent"]["of"]:
            fragments.append(stream.next())
    tokens = [token(dict(fragment)) for fragment in fragments]
    assert len(tokens) > 1
    assert tokens == sorted(set(tokens))
    fields = [field for fragment in fragments for field in fragment if field not in ("_id", "splitEvent")]
    assert sorted(fields) == sorted(set(fields))
    with watch.db["a"].watch(split, resume_after=fragments[0]["_id"], **options) as stream:
        assert stream.next() == fragments[1]
    with watch.db["a"].watch(split, resume_after=fragments[-1]["_id"], **options) as stream:
        watch.db["a"].delete_one({"_id": 1})
        assert stream.next()["operationType"] == "delete"


def test_images_are_those_of_their_change_whatever_happened_afterwards(watch: Watch) -> None:
    watch.db.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
    watch.db.create_collection("b")
    options: dict[str, Any] = {"full_document": "whenAvailable", "full_document_before_change": "whenAvailable"}
    with watch.db.watch(max_await_time_ms=200, **options) as stream:
        for table in ("a", "b"):
            rows = watch.db[table]
            rows.insert_one({"_id": 1, "u": 1, "l": [1, 2, 3]})
            rows.update_one({"_id": 1}, {"$set": {"l.1": 9}, "$unset": {"u": ""}})
            rows.update_one({"_id": 1}, [{"$set": {"l": {"$slice": ["$l", 1]}, "padding": "x" * 200}}])
            rows.update_one({"_id": 1}, {"$set": {"l.0": 8}})
            rows.delete_one({"_id": 1})
        events = [stream.next() for _ in range(10)]
    history = [{"_id": 1, "u": 1, "l": [1, 2, 3]}, {"_id": 1, "l": [1, 9, 3]}]
    history += [{"_id": 1, "l": [first], "padding": "x" * 200} for first in (1, 8)]
    assert [event.get("fullDocument") for event in events[:5]] == [*history, None]
    assert [event.get("fullDocumentBeforeChange") for event in events[:5]] == [None, *history]
    for event in events[5:]:
        assert event.get("fullDocumentBeforeChange") is None
        assert event.get("fullDocument") is None or event["operationType"] in ("insert", "replace")


def test_a_variable_of_an_absent_field_is_missing(watch: Watch) -> None:
    watch.db["a"].insert_many([{"_id": 1}, {"_id": 2, "x": None}, {"_id": 3, "x": {}}])
    bound = {"$let": {"vars": {"v": "$x"}, "in": {"$type": "$$v"}}}
    types = watch.db["a"].aggregate([{"$sort": {"_id": 1}}, {"$project": {"type": bound}}])
    assert [document["type"] for document in types] == ["missing", "null", "object"]
