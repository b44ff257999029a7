"""The oplog entries that a source writes, and the entries that a range read returns: on the model and on a real server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from changefeed.cluster_time import ClusterTime
from changefeed.errors import SourceUnavailable
from source.errors import CAPPED_POSITION_LOST, translate
from source.oplog.find import entry_at
from tests.component.simulation.conftest import Beside, Source
from tests.component.simulation.lives import MOST_IN_ENTRY, UNIQUE, Act
from tests.component.simulation.served import code_of

ID = {"v": 2, "key": {"_id": 1}, "name": "_id_"}
_INVALID_OPTIONS = 72


class Range:
    """One find on the oplog, reply by reply."""

    def __init__(
        self, source: Source, start: ClusterTime, end: ClusterTime | None = None, *, most: int = 1000, **concern: Any
    ) -> None:
        self._source = source
        self._most = most
        self._session = source.client.start_session(causal_consistency=False)
        query = {"ts": {"$gte": start.to_bson(), **({"$lt": end.to_bson()} if end else {})}}
        read_concern = {"level": "majority", **concern}
        self._command: dict[str, Any] = {"find": "oplog.rs", "filter": query, "readConcern": read_concern}

    def next(self) -> list[dict[str, Any]]:
        command = {**self._command, "batchSize": self._most}
        reply = self._source.command(command, database="local", session=self._session)
        cursor = bson.decode(bson.encode(reply))["cursor"]
        self.open = bool(cursor["id"])
        self._command = {"getMore": bson.Int64(cursor["id"]), "collection": "oplog.rs"}
        found: list[dict[str, Any]] = cursor.get("firstBatch", cursor.get("nextBatch"))
        return found

    def all(self) -> list[dict[str, Any]]:
        found = self.next()
        while self.open:
            found += self.next()
        return found


def _written(source: Source, start: ClusterTime) -> list[dict[str, Any]]:
    """The entries of the case's database that the majority has."""
    newest = source.all_majority()
    return [entry for entry in Range(source, start, newest).all() if _concerns(entry, source.database)]


def _concerns(entry: Mapping[str, Any], database: str) -> bool:
    operations = entry["o"].get("applyOps", [entry])
    return any(operation["ns"].startswith(f"{database}.") for operation in operations)


def _told(entries: list[dict[str, Any]], database: str) -> list[dict[str, Any]]:
    """Entries without the fields that differ between runs; a time is replaced by the number of its entry."""
    numbers = {entry["ts"]: number for number, entry in enumerate(entries)}

    def plain(name: str, value: Any) -> Any:
        told = value
        match value:
            case dict() if name == "lsid":
                told = sorted(value)
            case dict() if name == "prevOpTime":
                told = numbers.get(value["ts"])
            case dict():
                told = {key: plain(key, each) for key, each in value.items()}
            case list():
                told = [plain("", each) for each in value]
            case str():
                told = value.replace(database, "db")
            case bytes() | bson.Binary():
                told = "..."
        return told

    unlike = ("ts", "t", "wall", "txnNumber")
    for entry in entries:
        assert {"ts", "t", "wall"} <= entry.keys()
    return [{name: plain(name, value) for name, value in entry.items() if name not in unlike} for entry in entries]


def _command(o: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"op": "c", "ns": "db.$cmd", "ui": "...", "o": o, "v": 2, **more}


def _row(op: str, o: dict[str, Any], key: int | None = None, coll: str = "t", **more: Any) -> dict[str, Any]:
    return {"op": op, "ns": f"db.{coll}", "ui": "...", "o": o, "v": 2, **({"o2": {"_id": key}} if key else {}), **more}


def test_each_write_is_an_entry_of_its_shape(source: Source) -> None:
    life, start = source.life, source.all_majority()
    life.create("t", validationLevel="moderate")
    life.create_index("t", UNIQUE)
    life.insert("t", {"_id": 1, "u": 1, "v": 1})
    life.update("t", 1, {"u": 2, "g": 2, "v": 2}, [])
    life.update("t", 1, {"v": 3}, ["g"])
    life.replace("t", {"_id": 1, "g": 3, "v": 4})
    life.delete("t", 1)
    life.modify("t", "off")
    life.drop_index("t", "u_1")
    life.create("old")
    life.rename("t", "old", replace=True)
    life.rename("old", "new")
    life.drop_database()
    before = {"uuid": "...", "validationLevel": "moderate"}
    assert _told(_written(source, start), source.database) == [
        _command({"create": "t", "validationLevel": "moderate", "idIndex": ID}),
        _command({"createIndexes": "t", **UNIQUE}),
        _row("i", {"_id": 1, "u": 1, "v": 1}, 1),
        _row("u", {"$v": 2, "diff": {"u": {"u": 2, "v": 2}, "i": {"g": 2}}}, 1),
        _row("u", {"$v": 2, "diff": {"d": {"g": False}, "u": {"v": 3}}}, 1),
        _row("u", {"_id": 1, "g": 3, "v": 4}, 1),
        _row("d", {"_id": 1}),
        _command({"collMod": "t", "validationLevel": "off"}, o2={"collectionOptions_old": before}),
        _command({"dropIndexes": "t", "index": "u_1"}, o2=UNIQUE),
        _command({"create": "old", "idIndex": ID}),
        _command(
            {"renameCollection": "db.t", "to": "db.old", "stayTemp": False, "dropTarget": "..."}, o2={"numRecords": 0}
        ),
        _command({"renameCollection": "db.old", "to": "db.new", "stayTemp": False}),
        _command({"drop": "new"}, o2={"numRecords": 0}),
        {"op": "c", "ns": "db.$cmd", "o": {"dropDatabase": 1}, "v": 2},
    ]


@pytest.mark.parametrize("end", ["commit", "drop_index", "duplicates"])
def test_a_build_on_rows_has_an_entry_where_it_begins_and_one_where_it_ends(source: Source, end: str) -> None:
    life = source.life
    life.insert("t", {"_id": 1, "u": 1})
    start = source.all_majority()
    building = life.begin_index("t", UNIQUE)
    life.insert("t", {"_id": 2, "u": 1 if end == "duplicates" else 2})
    if end == "drop_index":
        life.drop_index("t", "u_1")
    building.commit()
    entries = _told(_written(source, start), source.database)
    spec = {"indexBuildUUID": "...", "indexes": [UNIQUE]}
    last = "commitIndexBuild" if end == "commit" else "abortIndexBuild"
    entries[-1]["o"].pop("cause", None)
    assert [entry["o"] for entry in entries[::2]] == [{"startIndexBuild": "t", **spec}, {last: "t", **spec}]
    assert [entry["op"] for entry in entries] == ["c", "i", "c"]


def test_rows_of_a_table_that_becomes_capped_say_that_they_were_moved(source: Source) -> None:
    life = source.life
    life.insert("t", {"_id": 1, "v": 1})
    start = source.all_majority()
    life.convert_to_capped("t", 4096)
    create, moved, rename = _written(source, start)
    aside = create["o"]["create"]
    assert (create["o"]["capped"], create["o"]["temp"]) == (True, True)
    assert (moved["op"], moved["ns"], moved["fromMigrate"]) == ("i", f"{source.database}.{aside}", True)
    assert (moved["o"], moved["o2"], moved["ui"]) == ({"_id": 1, "v": 1}, {"_id": 1}, create["ui"])
    assert rename["o"]["to"] == f"{source.database}.t"
    assert rename["ui"] == create["ui"]


_ACTS: tuple[Act, ...] = (
    ("insert", "t", {"_id": 1, "v": 1}),
    ("create", "n", {}),
    ("index", "n", UNIQUE),
    ("insert", "n", {"_id": 1, "v": 2}),
    ("update", "t", {"_id": 1, "v": 3}),
    ("delete", "n", {"_id": 1}),
)
_INNER = [
    {"op": "i", "ns": "db.t", "ui": "...", "o": {"_id": 1, "v": 1}, "o2": {"_id": 1}},
    {"op": "c", "ns": "db.$cmd", "ui": "...", "o": {"create": "n", "idIndex": ID}},
    {"op": "c", "ns": "db.$cmd", "ui": "...", "o": {"createIndexes": "n", **UNIQUE}},
    {"op": "i", "ns": "db.n", "ui": "...", "o": {"_id": 1, "v": 2}, "o2": {"_id": 1}},
    {"op": "u", "ns": "db.t", "ui": "...", "o": {"$v": 2, "diff": {"u": {"v": 3}}}, "o2": {"_id": 1}},
    {"op": "d", "ns": "db.n", "ui": "...", "o": {"_id": 1}},
]


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_transaction_is_one_entry_or_a_chain_of_them(chaining_source: Source, entries: int) -> None:
    source, operations = chaining_source, MOST_IN_ENTRY * entries
    source.life.create("t")
    start = source.all_majority()
    assert source.life.transaction(*_ACTS[:operations]) == 0
    parts = [_INNER[number * MOST_IN_ENTRY :][:MOST_IN_ENTRY] for number in range(entries)]
    more: list[dict[str, Any]] = [{"partialTxn": True} for _ in parts[1:]]
    more.append({"count": operations} if entries > 1 else {})
    assert _told(_written(source, start), source.database) == [
        {
            "op": "c",
            "ns": "admin.$cmd",
            "o": {"applyOps": part, **more[number]},
            "v": 2,
            "lsid": ["id", "uid"],
            "prevOpTime": number - 1 if number else None,
        }
        for number, part in enumerate(parts)
    ]


def test_writes_of_a_session_that_may_be_retried_point_at_the_one_before(source: Source) -> None:
    source.life.create("t")
    start = source.all_majority()
    assert source.life.retryably("t", {"_id": 1, "v": 1}, {"_id": 2, "v": 2}) == 0
    assert _told(_written(source, start), source.database) == [
        _row("i", {"_id": 1, "v": 1}, 1, lsid=["id", "uid"], stmtId=0, prevOpTime=None),
        _row("i", {"_id": 2, "v": 2}, 2, lsid=["id", "uid"], stmtId=1, prevOpTime=0),
    ]


def _keys(source: Source, entries: list[dict[str, Any]]) -> list[Any]:
    return [entry["o"]["_id"] for entry in entries if entry["op"] == "i" and entry["ns"] == f"{source.database}.t"]


def test_what_no_majority_has_is_in_no_range_and_who_asks_for_its_time_waits(source: Source) -> None:
    source.life.create("t")
    start = source.all_majority()
    with source.life.majority_held():
        source.life.insert("t", {"_id": 1})
        newest = source.newest_ts()
        assert newest > source.majority_ts()
        assert _keys(source, Range(source, start).all()) == []
        waiting = source.served.begin(_asks(source, start, newest))
        assert source.majority_ts() < newest
        assert not waiting.done
    assert _keys(source, waiting.result()["cursor"]["firstBatch"]) == [1]


def _asks(source: Source, start: ClusterTime, after: ClusterTime) -> Any:
    concern = {"level": "majority", "afterClusterTime": after.to_bson()}
    command = {"find": "oplog.rs", "filter": {"ts": {"$gte": start.to_bson()}}, "readConcern": concern}
    return lambda: bson.decode(bson.encode(source.client["local"].command(command)))


def test_a_time_that_has_not_come_is_refused_at_once(source: Source) -> None:
    start = source.all_majority()
    later = ClusterTime(start.seconds + 1000, 1).to_bson()
    with pytest.raises(PyMongoError) as refused:
        Range(source, start, afterClusterTime=later).next()
    assert getattr(refused.value, "code", None) == _INVALID_OPTIONS


def test_ranges_up_to_the_majority_point_hold_each_entry_once(source: Source) -> None:
    source.life.create("t")
    start, found = source.all_majority(), []
    for key in range(1, 30):
        source.life.insert("t", {"_id": key})
        end = source.majority_ts().next()
        found += _keys(source, Range(source, start, end, most=2).all())
        start = end
    source.served.until(lambda: source.majority_ts() >= source.newest_ts())
    found += _keys(source, Range(source, start, source.majority_ts().next()).all())
    assert found == list(range(1, 30))


def test_a_range_that_begins_before_the_oldest_entry_shows_the_later_ones_and_says_nothing(
    forgetting_source: Source,
) -> None:
    source = forgetting_source
    source.life.create("t")
    start = source.all_majority()
    source.life.insert("t", {"_id": 1})
    source.life.forget()
    source.all_majority()
    found = Range(source, start).all()
    assert found
    assert _keys(source, found) == []
    oldest = source.call(lambda: source.client["local"]["oplog.rs"].find_one({}, sort=[("$natural", 1)]))
    assert ClusterTime.from_bson(oldest["ts"]) > start


def test_a_cursor_whose_place_is_truncated_is_lost(forgetting_source: Source) -> None:
    source = forgetting_source
    source.life.create("t")
    start = source.all_majority()
    source.life.insert("t", *({"_id": key} for key in range(5)))
    source.all_majority()
    reading = Range(source, start, most=2)
    assert len(reading.next()) == 2
    source.life.forget()
    with pytest.raises(PyMongoError) as lost:
        reading.next()
    assert getattr(lost.value, "code", None) == CAPPED_POSITION_LOST


def test_a_secondary_that_is_behind_shows_less_unless_it_is_asked_to_wait(beside: Beside) -> None:
    source, secondary = beside.source, beside.secondary
    source.life.create("t")
    start = source.all_majority()
    source.served.until(lambda: secondary.majority_ts() >= start)
    with beside.behind():
        source.life.insert("t", {"_id": 1})
        source.all_majority()
        end = source.majority_ts()
        assert secondary.majority_ts() < end
        assert _keys(source, Range(source, start).all()) == [1]
        assert _keys(secondary, Range(secondary, start).all()) == [], "nothing says that this is not all"
        waiting = source.served.begin(_asks(secondary, start, end))
        source.all_majority()
        assert not waiting.done
    assert _keys(source, waiting.result()["cursor"]["firstBatch"]) == [1]


def test_a_part_of_a_transaction_is_not_gone_where_a_member_is_behind(beside: Beside) -> None:
    """As after a failover between the read of a transaction's last entry and the read of its earlier entries."""
    source, secondary = beside.source, beside.secondary
    source.life.create("t")
    start = source.all_majority()
    source.served.until(lambda: secondary.majority_ts() >= start)
    with beside.behind():
        source.life.insert("t", {"_id": 1, "v": 1})
        source.all_majority()
        [entry] = [each for each in Range(source, start).all() if each["ns"] == f"{source.database}.t"]
        at = ClusterTime.from_bson(entry["ts"])
        waiting = source.served.begin(lambda: entry_at(secondary.client, at, None))
        source.all_majority()
        assert not waiting.done
    assert bson.decode(waiting.result())["o"] == {"_id": 1, "v": 1}


def test_an_election_may_take_back_what_no_majority_had(set_source: Source) -> None:
    source = set_source
    source.life.create("t")
    start = source.all_majority()
    source.life.roll_back(lambda: source.life.insert("t", {"_id": 1}))
    source.served.until(lambda: _answers(source, start))
    source.life.insert("t", {"_id": 2})
    assert _keys(source, _written(source, start)) == [2]


def _answers(source: Source, start: ClusterTime) -> bool:
    return code_of(lambda: Range(source, start).next()) == 0


def test_a_cursor_on_the_oplog_does_not_outlive_its_primary(set_source: Source) -> None:
    source = set_source
    source.life.create("t")
    start = source.all_majority()
    source.life.insert("t", *({"_id": key} for key in range(5)))
    end = source.all_majority()
    reading = Range(source, start, end, most=2)
    reading.next()
    assert reading.open
    source.elect()
    with pytest.raises(PyMongoError) as gone:
        reading.next()
    assert isinstance(translate(gone.value, "reading"), SourceUnavailable)
    source.served.until(lambda: _answers(source, start))
    assert _keys(source, Range(source, start, afterClusterTime=end.to_bson()).all()) == list(range(5))


def test_a_point_is_found_by_its_time(source: Source) -> None:
    source.life.create("t")
    start = source.all_majority()
    source.life.insert("t", {"_id": 1})
    [entry] = _written(source, start)
    command = {"find": "oplog.rs", "filter": {"ts": entry["ts"]}, "readConcern": {"level": "majority"}}
    nothing = {**command, "filter": {"ts": Timestamp(1, 1)}}
    replies = [bson.decode(bson.encode(source.command(each, database="local"))) for each in (command, nothing)]
    assert [len(reply["cursor"]["firstBatch"]) for reply in replies] == [1, 0]
