"""The events that a source shows in its change streams, and when: on the model and on a real server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import bson
import pytest
from pymongo.errors import OperationFailure, PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SluiceError, SourceUnavailable
from changefeed.position import Position
from source.errors import CHANGE_STREAM_HISTORY_LOST, translate
from source.resume_token import position_of
from source.stream.change_event import StreamReply
from source.stream.raw_stream import RawStream
from tests.component.simulation.conftest import Source
from tests.component.simulation.lives import PLAIN, UNIQUE
from tests.simulation.source.replica_set import NOTE_EVERY

_REPLY = 100


class Stream:
    """A change stream, read as the product reads it."""

    def __init__(self, source: Source, start_ts: ClusterTime, *, types: list[str] | None = None) -> None:
        self._source = source
        match: dict[str, Any] = {"ns.db": source.database} | ({"operationType": {"$in": types}} if types else {})
        stream = RawStream(
            source.client, start_ts=start_ts, options={"showExpandedEvents": True}, stages=[{"$match": match}]
        )
        self._stream = source.call(stream.__enter__)

    def next(self, await_ms: int = 10) -> StreamReply:
        while (reply := self._source.call(lambda: self._stream.next(await_ms=await_ms, most=_REPLY))) is None:
            pass
        return reply

    def all(self) -> list[dict[str, Any]]:
        """Reads up to the majority's current time."""
        end, found = self._source.majority_ts(), []
        while True:
            reply = self.next()
            found += [bson.decode(event) for event in reply.events]
            if reply.resume_token is not None and position_of(reply.resume_token).ts >= end and not reply.events:
                return found


def _told(event: Mapping[str, Any]) -> list[Any]:
    """The event without the fields that differ between runs."""
    names = [event["ns"].get("coll", "")] + ([event["to"]["coll"]] if "to" in event else [])
    described = dict(event.get("operationDescription", {}))
    for unlike in ("idIndex", "dropTarget"):
        if unlike in described:
            described[unlike] = "..."
    change = {name: value for name, value in event.get("updateDescription", {}).items() if value}
    return [event["operationType"], *names, *filter(None, [described, change, event.get("fullDocument")])]


def test_what_happens_is_shown_in_its_order_and_in_the_same_words(source: Source) -> None:
    life, start = source.life, source.all_majority()
    life.create("t", validationLevel="moderate")
    life.create_index("t", UNIQUE)
    life.insert("t", {"_id": 1, "u": 1, "v": 1})
    life.update("t", 1, {"u": 2, "v": 2}, [])
    life.replace("t", {"_id": 1, "g": 3, "v": 3})
    life.delete("t", 1)
    life.modify("t", "off")
    life.drop_index("t", "u_1")
    life.create("old")
    life.rename("t", "old", replace=True)
    life.rename("old", "new")
    life.drop_database()
    source.all_majority()
    assert [_told(event) for event in Stream(source, start).all()] == [
        ["create", "t", {"validationLevel": "moderate", "idIndex": "..."}],
        ["createIndexes", "t", {"indexes": [UNIQUE]}],
        ["insert", "t", {"_id": 1, "u": 1, "v": 1}],
        ["update", "t", {"updatedFields": {"u": 2, "v": 2}}],
        ["replace", "t", {"_id": 1, "g": 3, "v": 3}],
        ["delete", "t"],
        ["modify", "t", {"validationLevel": "off"}],
        ["dropIndexes", "t", {"indexes": [UNIQUE]}],
        ["create", "old", {"idIndex": "..."}],
        ["rename", "t", "old", {"to": {"db": source.database, "coll": "old"}, "dropTarget": "..."}],
        ["rename", "old", "new", {"to": {"db": source.database, "coll": "new"}}],
        ["drop", "new"],
        ["dropDatabase", ""],
    ]


def test_an_index_on_rows_is_shown_when_it_is_built_after_what_was_written_meanwhile(source: Source) -> None:
    life, start = source.life, source.all_majority()
    life.insert("t", {"_id": 1, "u": 1})
    building = life.begin_index("t", UNIQUE)
    life.insert("t", {"_id": 2, "u": 2})
    seen = [index["name"] for index in source.indexes("t")]
    assert building.commit() == 0
    source.all_majority()
    assert seen == ["_id_", "u_1"], "it is listed as soon as its build starts"
    assert [event["operationType"] for event in Stream(source, start).all()] == [
        "create",
        "insert",
        "insert",
        "createIndexes",
    ]


def test_a_catalog_that_asks_for_builds_can_tell_them_from_indexes(source: Source) -> None:
    source.life.insert("t", {"_id": 1, "u": 1})
    building = source.life.begin_index("t", UNIQUE)
    found = source.indexes("t", includeBuildUUIDs=True)
    building.commit()
    done = source.indexes("t", includeBuildUUIDs=True)
    assert ["buildUUID" in index for index in found] == [False, True]
    assert found[1]["spec"] == done[1] == UNIQUE


@pytest.mark.parametrize("end", ["drop", "drop_index"])
def test_a_build_that_is_given_up_is_never_shown(source: Source, end: str) -> None:
    life, start = source.life, source.all_majority()
    life.insert("t", {"_id": 1, "u": 1})
    building = life.begin_index("t", UNIQUE)
    assert (life.drop("t") if end == "drop" else life.drop_index("t", "u_1")) == 0
    assert building.commit() == 276
    source.all_majority()
    shown = [event["operationType"] for event in Stream(source, start).all()]
    assert shown == ["create", "insert", *(["drop"] if end == "drop" else [])]


def test_a_unique_build_lets_duplicates_in_and_then_fails_unseen(source: Source) -> None:
    life, start = source.life, source.all_majority()
    life.insert("t", {"_id": 1, "u": 1})
    building = life.begin_index("t", UNIQUE)
    assert life.insert("t", {"_id": 2, "u": 1}) == 0
    assert building.commit() == 11000
    source.all_majority()
    assert [event["operationType"] for event in Stream(source, start).all()] == ["create", "insert", "insert"]
    assert [index["name"] for index in source.indexes("t")] == ["_id_"]


def test_a_table_whose_index_is_built_is_neither_modified_nor_renamed_nor_replaced(source: Source) -> None:
    life = source.life
    life.insert("t", {"_id": 1, "u": 1})
    life.create("other")
    building = life.begin_index("t", UNIQUE)
    codes = life.modify("t", "off"), life.rename("t", "new"), life.rename("other", "t", replace=True)
    conflicting = life.create_index("t", {**PLAIN, "name": "u_1"}), life.create_index("t", {**UNIQUE, "name": "x"})
    assert building.commit() == 0
    assert codes == (12587, 12587, 12587)
    assert conflicting == (86, 85)


def test_a_table_that_becomes_capped_is_another_one_whose_rows_nobody_is_shown(source: Source) -> None:
    life = source.life
    life.insert("t", {"_id": 1, "u": 1})
    start = source.all_majority()
    assert life.convert_to_capped("t", 4096) == 0
    source.all_majority()
    create, rename = Stream(source, start).all()
    assert create["operationType"] == "create"
    assert create["ns"]["coll"].startswith("tmp")
    assert create["ns"]["coll"].endswith(".convertToCapped.t")
    described = create["operationDescription"]
    assert (described["capped"], described["size"], described["temp"]) == (True, 4096, True)
    assert (rename["operationType"], rename["ns"], rename["to"]["coll"]) == ("rename", create["ns"], "t")
    assert rename["collectionUUID"] == create["collectionUUID"]
    assert rename["operationDescription"]["dropTarget"] != create["collectionUUID"]


def test_a_stream_that_matches_nothing_is_silent_until_the_end_of_the_oplog(source: Source) -> None:
    start = source.all_majority()
    source.life.create("t")
    source.life.insert("t", *({"_id": number} for number in range(500)))
    source.all_majority()
    end = source.majority_ts()
    reply = Stream(source, start, types=["drop"]).next(await_ms=1)
    assert reply.events == []
    assert reply.resume_token is not None
    assert position_of(reply.resume_token) >= Position(end), "no getMore comes back before the end"


def test_tokens_promise_what_is_before_them_and_stay_at_the_last_event(source: Source) -> None:
    start = source.all_majority()
    stream = Stream(source, start)
    assert position_of(stream.next().resume_token or "") == Position(start), "the next event may come at it"
    source.life.create("t")
    event = _first(stream)
    at = position_of(event.resume_token or "")
    assert at.token, "the token is the event's"
    assert position_of(stream.next().resume_token or "") == at, "nothing newer was written"
    source.life.note()
    source.served.until(lambda: position_of(stream.next().resume_token or "") > at)
    after = position_of(stream.next().resume_token or "")
    assert not after.token
    assert after.ts > at.ts


def test_a_batch_that_ends_behind_its_last_event_has_the_token_of_where_it_ends(source: Source) -> None:
    start = source.all_majority()
    source.life.create("t")
    source.all_majority()
    reply = _first(Stream(source, start))
    assert len(reply.events) == 1
    assert position_of(reply.resume_token or "") == Position(source.majority_ts())


def _first(stream: Stream) -> StreamReply:
    while not (reply := stream.next()).events:
        pass
    return reply


def test_an_idle_source_moves_its_token_by_its_no_op_writer(idle_source: Source) -> None:
    start = idle_source.all_majority()
    stream = Stream(idle_source, start)
    before = position_of(stream.next().resume_token or "")
    idle_source.served.until(lambda: position_of(stream.next(100).resume_token or "").ts > before.ts.next())


def test_the_no_op_writer_looks_as_seldom_as_the_model_does(real_server: Any) -> None:
    with real_server.client() as client:
        asked = client.admin.command({"getParameter": 1, "periodicNoopIntervalSecs": 1})
    assert asked["periodicNoopIntervalSecs"] == NOTE_EVERY


def test_what_no_majority_has_is_not_shown(source: Source) -> None:
    source.life.create("t")
    start = source.all_majority()
    stream, before = Stream(source, start), source.majority_ts()
    with source.life.majority_held():
        source.life.insert("t", {"_id": 1})
        assert source.majority_ts() == before
        reply = stream.next()
        assert reply.events == []
        assert reply.operation_ts == before
        newest = source.newest_ts()
        assert newest > before
    source.served.until(lambda: bool(stream.next().events))


def test_a_note_may_be_written_while_the_majority_stands_still(source: Source) -> None:
    def note() -> None:
        source.client.admin.command("appendOplogNote", 1, data={"a": "note"}, writeConcern={"w": 1})

    with source.life.majority_held():
        source.call(note)
        waiting = source.served.begin(
            lambda: source.client.admin.command("appendOplogNote", 1, data={"a": "note"})  # waits, from 5.0 on
        )
        assert not waiting.done
    waiting.result()


@pytest.mark.parametrize("ddl", ["rename", "drop", "drop and create", "replaced", "index", "modify"])
def test_a_snapshot_is_read_to_its_end_or_refused_or_says_no_time(source: Source, ddl: str) -> None:
    """The server's answer to the rest of a find, and to the same find repeated, after a DDL."""
    life, call = source.life, source.call
    life.insert("t", *({"_id": key} for key in range(5)))
    life.create("o")
    source.all_majority()
    session = source.client.start_session(causal_consistency=False)
    concern: dict[str, Any] = {"level": "snapshot"}
    find: dict[str, Any] = {"find": "t", "hint": {"_id": 1}, "readConcern": concern}
    first = _cursor(source.command({**find, "batchSize": 2}, session=session))
    _do(source, ddl)
    source.all_majority()
    more = {"getMore": first["id"], "collection": "t", "batchSize": 100}
    again = {**find, "readConcern": {**concern, "atClusterTime": first["atClusterTime"]}}
    rest = _read(lambda: call(lambda: _cursor(source.client[source.database].command(more, session=session))))
    repeated = _read(lambda: source.command(again))
    expected: Mapping[str, tuple[object, object]] = {
        "rename": (175, "nothing, of no time"),
        "drop": (175, "nothing, of no time"),
        "drop and create": (246, 246),
        "replaced": (246, 246),
        "index": ("rows", "rows"),
        "modify": ("rows", "rows"),
    }
    assert (rest, repeated) == expected[ddl]


def _do(source: Source, ddl: str) -> None:
    life = source.life
    match ddl:
        case "rename":
            life.rename("t", "new")
        case "drop":
            life.drop("t")
        case "drop and create":
            life.drop("t")
            life.create("t")
        case "replaced":
            life.rename("o", "t", replace=True)
        case "index":
            life.create_index("t", PLAIN)
        case _:
            life.modify("t", "off")


def _cursor(reply: Any) -> dict[str, Any]:
    return bson.decode(bson.encode(reply))["cursor"]  # type: ignore[no-any-return]


def _read(read: Any) -> object:
    try:
        reply = read()
    except PyMongoError as error:
        return getattr(error, "code", None)
    cursor = reply if "id" in reply else _cursor(reply)
    if "atClusterTime" not in cursor:
        assert cursor["firstBatch"] == []
        return "nothing, of no time"
    return "rows"


def test_history_that_is_forgotten_is_refused_with_its_code(forgetting_source: Source) -> None:
    start = forgetting_source.all_majority()
    forgetting_source.life.forget()
    with pytest.raises(OperationFailure) as refused:
        Stream(forgetting_source, start).next()
    assert refused.value.code == CHANGE_STREAM_HISTORY_LOST


def test_a_cursor_does_not_outlive_its_primary_and_its_client_may_ask_again(set_source: Source) -> None:
    source = set_source
    start = source.all_majority()
    session = source.client.start_session(causal_consistency=False)
    admin, stream = source.client.admin, {"allChangesForCluster": True, "startAtOperationTime": start.to_bson()}
    opening = {"aggregate": 1, "pipeline": [{"$changeStream": stream}], "cursor": {"batchSize": 1}}
    cursor = _cursor(source.call(lambda: admin.command(opening, session=session)))
    source.life.create("t")
    source.all_majority()
    source.elect()
    more = {"getMore": cursor["id"], "collection": "$cmd.aggregate", "maxTimeMS": 1}
    refused = _refused(lambda: source.call(lambda: admin.command(more, session=session)))
    assert isinstance(refused, SourceUnavailable)
    source.served.until(lambda: _refused(lambda: Stream(source, start).next()) is None)
    assert [event["operationType"] for event in Stream(source, start).all()] == ["create"]


def _refused(act: Callable[[], object]) -> SluiceError | None:
    try:
        act()
    except PyMongoError as error:
        return translate(error, "reading")
    return None
