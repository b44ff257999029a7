"""Tables of two servers without concurrent writes."""

from __future__ import annotations

import datetime as dt
import hmac
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId

from changefeed.config.configuration import Configuration
from changefeed.config.tables.pattern import TablePattern
from changefeed.table import TableName
from devstack.mongodb.server import Client, MongoDB
from source.compared import ComparedDeployment
from source.connection import connect
from tests.component.verify.verified import Heard, Sides, Verify
from verify.report import Aspect, DifferenceKind, Outcome, VerifyProgress
from verify.verification import Verification, Wishes

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PAD = "x" * 400
MANY = [{"_id": number, "n": number, "pad": PAD} for number in range(1_500)]
MIXED: list[Any] = [None, True, "a", "b", 1.5, Int64(2**40), {"a": 1}, ObjectId(), DAY, b"x"]
SMALL_RANGES = Wishes(range_bytes=100_000)


@pytest.mark.since("6.0")
def test_equal_tables_of_several_kinds_are_equal(sides: Sides, verify: Verify) -> None:
    sides.on_both("many", MANY)
    sides.on_both("mixed", [{"_id": key} for key in MIXED] + [{"_id": f"s{number}"} for number in range(1_000)])
    sides.on_both("empty", [])
    sides.on_both("capped", [{"_id": number} for number in range(100)], capped=True, size=1 << 20)
    sides.on_both("clustered", [{"_id": 1}], clusteredIndex={"key": {"_id": 1}, "unique": True})
    sides.on_both("collated", [{"_id": key} for key in "bAcD"], collation={"locale": "en", "strength": 2})
    sides.on_both("view", [], viewOn="many", pipeline=[{"$match": {"n": 1}}])
    sides.series_on_both("series", [{"at": DAY, "m": 1, "v": number} for number in range(10)])
    verified = verify(wishes=SMALL_RANGES)
    assert verified.report.succeeded
    assert {table.name.coll: table.outcome for table in verified.report.tables} == dict.fromkeys(
        ["many", "mixed", "empty", "capped", "clustered", "collated", "view", "series"], Outcome.EQUAL
    )
    many = verified.table("many").documents
    assert many is not None
    assert (many.source, many.target) == (1_500, 1_500)
    assert Aspect.DOCUMENTS not in verified.table("view").results


def test_documents_are_compared_as_the_target_sees_them(
    sides: Sides, verify: Verify, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    monkeypatch.setenv("HASH_KEY", "k")
    key = {"hash": ["mail"], "hash_key": "${env:HASH_KEY}"}
    rule = {"tables": [f"{database}.users"], "drop": ["ssn"], "mask": {"name": "***"}, **key}
    sides.source.users.insert_many([{"_id": number, "ssn": "secret", "name": "secret"} for number in range(3)])
    sides.target.users.insert_many([{"_id": 0, "name": "***"}, {"_id": 1, "name": "secret"}, {"_id": 2, "name": "***"}])
    sides.source.users.insert_one({"_id": 3, "mail": "secret"})
    sides.target.users.insert_one({"_id": 3, "mail": hmac.new(b"k", b"\x02\x07\0\0\0secret\0", "sha256").hexdigest()})
    documents = verify(columns=[rule]).table("users").documents
    assert documents is not None
    assert [(each.key, each.details) for each in documents.differences] == [
        ("1", ('name is "***" at the source, "secret" at the target',))
    ]


def test_progress_ends_with_everything_done(sides: Sides, verify: Verify) -> None:
    sides.on_both("many", MANY)
    sides.on_both("few", MANY[:3])
    heard = verify(wishes=SMALL_RANGES).heard
    first, last = heard.steps[0], heard.steps[-1]
    assert (first.tables, first.tables_done) == (2, 0)
    assert (last.tables_done, last.ranges_done, last.documents) == (2, last.ranges, 1_503)
    assert last.ranges > 5
    assert {table.name.coll for table in heard.tables} == {"many", "few"}


def test_each_planted_difference_is_found_and_no_other(sides: Sides, verify: Verify) -> None:
    sides.on_both("many", MANY)
    sides.target.many.delete_one({"_id": 17})
    sides.target.many.update_one({"_id": 1_000}, {"$set": {"n": -1}})
    sides.target.many.insert_many([{"_id": -5}, {"_id": "beyond"}, {"_id": 1_499.5}])
    verified = verify(wishes=SMALL_RANGES)
    documents = verified.table("many").documents
    assert documents is not None
    assert {(each.kind, each.key) for each in documents.differences} == {
        (DifferenceKind.MISSING, "17"),
        (DifferenceKind.CHANGED, "1000"),
        (DifferenceKind.EXTRA, "-5"),
        (DifferenceKind.EXTRA, '"beyond"'),
        (DifferenceKind.EXTRA, "1499.5"),
    }
    assert ("n is 1000 at the source, -1 at the target",) in [each.details for each in documents.differences]
    assert verified.result("many", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT
    assert not verified.report.succeeded
    assert (documents.source, documents.target, documents.complete) == (1_500, 1_502, True)


@pytest.mark.parametrize("clustered", [False, pytest.param(True, marks=pytest.mark.since("6.0"))])
def test_the_first_and_the_last_key_of_all_are_compared_once(sides: Sides, verify: Verify, clustered: bool) -> None:
    ends = [{"_id": MinKey(), "n": 1}, {"_id": MaxKey(), "n": 1}]
    options = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}} if clustered else {}
    sides.on_both("many", [*MANY, *ends], **options)
    same = verify(wishes=SMALL_RANGES).table("many").documents
    sides.target.many.update_one({"_id": MinKey()}, {"$set": {"n": 2}})
    sides.target.many.delete_one({"_id": MaxKey()})
    other = verify(wishes=SMALL_RANGES).table("many").documents
    assert same is not None
    assert other is not None
    assert (same.source, same.target, list(same.differences)) == (1_502, 1_502, [])
    assert {each.kind for each in other.differences} == {DifferenceKind.CHANGED, DifferenceKind.MISSING}


def test_random_differences_are_all_found(sides: Sides, verify: Verify) -> None:
    chance = random.Random(5)
    sides.on_both("many", MANY)
    touched = chance.sample(range(1_500), 40)
    sides.target.many.delete_many({"_id": {"$in": touched[:20]}})
    sides.target.many.update_many({"_id": {"$in": touched[20:]}}, {"$set": {"other": 1}})
    documents = verify(wishes=Wishes(range_bytes=100_000, max_differences=100)).table("many").documents
    assert documents is not None
    assert {int(each.key) for each in documents.differences} == set(touched)


def test_a_key_of_another_number_type_is_a_changed_document(sides: Sides, verify: Verify) -> None:
    sides.source.numbers.insert_one({"_id": 1})
    sides.target.numbers.insert_one({"_id": 1.0})
    documents = verify().table("numbers").documents
    assert documents is not None
    (found,) = documents.differences
    assert (found.kind, found.key) == (DifferenceKind.CHANGED, "1")


@pytest.mark.parametrize(("ignore", "outcome"), [(False, Outcome.REORDERED), (True, Outcome.EQUAL)])
def test_the_order_of_fields(sides: Sides, verify: Verify, ignore: bool, outcome: Outcome) -> None:
    sides.source.ordered.insert_one({"_id": 1, "a": 1, "b": 2})
    sides.target.ordered.insert_one({"_id": 1, "b": 2, "a": 1})
    result = verify(wishes=Wishes(ignore_field_order=ignore)).result("ordered", Aspect.DOCUMENTS)
    assert result.outcome is outcome


def test_tables_on_one_side_only(sides: Sides, verify: Verify) -> None:
    sides.source.here.insert_one({"_id": 1})
    sides.target.there.insert_one({"_id": 1})
    verified = verify()
    assert "missing at the target" in verified.result("here", Aspect.TABLE).details[0]
    assert "at the target only" in verified.result("there", Aspect.TABLE).details[0]
    assert verified.table("here").documents is None


def test_options_and_indexes_that_differ(sides: Sides, verify: Verify) -> None:
    sides.source.create_collection("a", validator={"n": {"$gt": 0}})
    sides.target.create_collection("a")
    sides.source.a.create_index("n", unique=True)
    sides.target.a.create_index("m")
    verified = verify()
    assert "validator is" in verified.result("a", Aspect.OPTIONS).details[0]
    assert verified.result("a", Aspect.INDEXES).details == (
        "index m_1 is at the target only",
        "index n_1 is missing at the target",
    )
    assert verified.result("a", Aspect.DOCUMENTS).outcome is Outcome.EQUAL


@pytest.mark.since("5.0")
def test_each_bucket_of_a_time_series_is_compared_with_that_of_the_target(sides: Sides, verify: Verify) -> None:
    sides.series_on_both("series", [{"at": DAY, "m": sensor, "v": 1} for sensor in range(3)])
    first, second, _ = sides.source["system.buckets.series"].find().sort("_id", 1)
    sides.target["system.buckets.series"].delete_one({"_id": first["_id"]})
    sides.target["system.buckets.series"].update_one({"_id": second["_id"]}, {"$set": {"data.v.0": 2}})
    documents = verify().table("series").documents
    assert documents is not None
    assert (documents.source, documents.target) == (3, 2)
    assert {each.kind: str(each.key) for each in documents.differences} == {
        DifferenceKind.MISSING: f'{{"$oid": "{first["_id"]}"}}',
        DifferenceKind.CHANGED: f'{{"$oid": "{second["_id"]}"}}',
    }


@pytest.mark.since("6.0")
def test_what_a_full_capped_collection_dropped_is_not_comparable(sides: Sides, verify: Verify) -> None:
    sides.on_both("capped", [{"_id": number} for number in range(10)], capped=True, size=1 << 20, max=10)
    sides.target.capped.update_one({"_id": 7}, {"$set": {"a": 1}})
    sides.source.capped.delete_one({"_id": 1})
    sides.source.capped.insert_one({"_id": 10})
    verified = verify()
    documents = verified.table("capped").documents
    assert documents is not None
    assert [each.key for each in documents.differences] == ["7"]
    assert documents.excused == {DifferenceKind.MISSING: 1, DifferenceKind.EXTRA: 1}


def test_a_capped_collection_that_is_not_full_lacks_nothing(sides: Sides, verify: Verify) -> None:
    sides.on_both("capped", [{"_id": 1}], capped=True, size=1 << 20)
    sides.source.capped.insert_one({"_id": 2})
    assert verify().result("capped", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT


def test_ignored_events_excuse_what_they_left_behind_and_nothing_else(sides: Sides, verify: Verify) -> None:
    sides.on_both("audit", [{"_id": 1}, {"_id": 2}])
    sides.source.audit.delete_one({"_id": 1})
    rule = {"tables": [f"{sides.database}.audit"], "ignore": ["delete"]}
    feed = {"filter": {"tables": [f"{sides.database}.*"], "events": [rule]}}
    result = verify(**feed).result("audit", Aspect.DOCUMENTS)
    assert result.outcome is Outcome.NOT_COMPARABLE
    assert "ignores delete events" in result.details[0]
    sides.target.audit.delete_one({"_id": 2})
    assert verify(**feed).result("audit", Aspect.DOCUMENTS).outcome is Outcome.DIFFERENT


def test_several_tables_under_one_name(sides: Sides, verify: Verify) -> None:
    sides.source.a.insert_many([{"_id": number, "from": "a"} for number in range(5)])
    sides.source.b.insert_many([{"_id": number, "from": "b"} for number in range(4, 9)])
    sides.target.all.insert_many([{"_id": number, "from": "a" if number < 5 else "b"} for number in range(9)])
    feed = {"routes": [{"from": f"{sides.database}.*", "to": f"{sides.database}.all"}]}
    assert verify(**feed).report.outcome is Outcome.EQUAL
    sides.target.all.delete_one({"_id": 0})
    sides.target.all.insert_one({"_id": 100})
    documents = verify(**feed).table("all").documents
    assert documents is not None
    assert {each.key for each in documents.differences} == {"0", "100"}


def test_a_chosen_table_is_compared_with_those_it_shares_its_name_with(sides: Sides, verify: Verify) -> None:
    for coll, key in (("a", 1), ("b", 2)):
        sides.source[coll].insert_one({"_id": key})
        sides.target.all.insert_one({"_id": key})
    feed = {"routes": [{"from": f"{sides.database}.*", "to": f"{sides.database}.all"}]}
    chosen = Wishes(tables=(TablePattern.parse(f"{sides.database}.a"),))
    assert verify(wishes=chosen, **feed).report.outcome is Outcome.EQUAL


def test_only_the_chosen_tables_are_looked_at(sides: Sides, verify: Verify) -> None:
    sides.source.wanted.insert_one({"_id": 1})
    sides.source.other.insert_one({"_id": 1})
    patterns = (TablePattern.parse(f"{sides.database}.w*"),)
    verified = verify(wishes=Wishes(tables=patterns))
    assert [table.name for table in verified.report.tables] == [TableName(sides.database, "wanted")]


def test_reading_a_table_ends_at_the_most_differences_asked_for(sides: Sides, verify: Verify) -> None:
    sides.on_both("many", MANY)
    sides.target.many.delete_many({})
    documents = verify(wishes=Wishes(range_bytes=100_000, max_differences=3)).table("many").documents
    assert documents is not None
    assert (len(documents.differences), documents.complete) == (3, False)


def test_a_large_range_that_cannot_be_divided_is_narrowed(
    sides: Sides, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test lowers the bounds, because half a million documents take too long."""
    monkeypatch.setattr("verify.document_check._JOINED_AT_ONCE", 200)
    monkeypatch.setattr("verify.document_check._DOCUMENTS_PER_SHARE", 100)
    sides.on_both("collated", MANY, collation={"locale": "en"})
    sides.target.collated.delete_one({"_id": 17})
    sides.target.collated.insert_one({"_id": 2_000})
    documents = verify().table("collated").documents
    assert documents is not None
    assert {each.key for each in documents.differences} == {"17", "2000"}


def test_a_target_that_is_away_for_a_moment_does_not_end_it(
    sides: Sides, source_uri: str, own_mongodb: Callable[[str], MongoDB]
) -> None:
    server = own_mongodb("target")
    with (
        connect(f"{source_uri}&w=majority") as source,
        Client(server.uri, w="majority", serverSelectionTimeoutMS=200) as target,
    ):
        for client in (source, target):
            client[sides.database].orders.insert_many(MANY)
        gone = Heard()

        class Killing(Heard):
            def progress(self, progress: VerifyProgress) -> None:
                if not gone.steps:
                    server.kill()
                    self.back = threading.Timer(1.0, server.start)
                    self.back.start()
                gone.progress(progress)

        fields = {"id": "f", "source": source_uri, "sink": server.uri, "filter": {"tables": [f"{sides.database}.*"]}}
        killing = Killing()
        report = Verification(
            Configuration.parse(fields), ComparedDeployment(source), target, killing, SMALL_RANGES
        ).run()
        killing.back.join()
    assert report.outcome is Outcome.EQUAL
