"""One changefeed fails: it reports the error, the others continue, and it continues too after the repair."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from bson.timestamp import Timestamp

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.event import DdlEvent, DdlType
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState, Scope
from changefeed.records.requests import DesiredState, SkipRequest, TableVerb
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import Put
from coordination.layout import encode
from tests.component.owner.conftest import Cluster
from tests.component.owner.tables.test_filter_change import id_of

NOWHERE = "mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=200&connectTimeoutMS=200"


def now(cluster: Cluster) -> Position:
    time: Timestamp = cluster.source.admin.command("ping")["operationTime"]
    return Position(ClusterTime.from_bson(time))


def test_an_unreachable_source_is_told_and_slows_no_other_changefeed(led: Cluster, database: str) -> None:
    lost = led.create("lost", "nowhere", source=NOWHERE)
    led.until(lambda: led.state(lost) is State.WARNING and "source_unavailable" in led.error(lost))
    well = led.create("well", database)
    led.until(lambda: led.began(well))
    led.source[database].create_collection("orders")
    led.until(lambda: led.settled(well, 1))
    assert led.state(well) is State.NORMAL
    led.change(lost, DesiredState.PAUSED)
    led.until(lambda: led.state(lost) is State.STOPPED, "a pause while beginning")
    led.change(lost, DesiredState.REMOVED)
    led.until(lambda: not led.exists(lost), "a removal while beginning")


def test_a_source_that_comes_back_is_begun_with(led: Cluster, database: str) -> None:
    feed = led.create("late", database, source=NOWHERE)
    led.until(lambda: led.state(feed) is State.WARNING)
    led.change(feed, source=led.source_uri)
    led.until(lambda: led.began(feed))
    led.until(lambda: led.state(feed) is State.NORMAL)


def test_a_missing_credential_fails_its_changefeed_alone_and_setting_it_helps(led: Cluster, database: str) -> None:
    feed = led.create("secret", database, source="mongodb://reader:${env:SLUICE_TEST_UNSET}@127.0.0.1:9/")
    led.until(lambda: led.state(feed) is State.FAILED)
    assert "SLUICE_TEST_UNSET is not set" in led.error(feed)
    led.change(feed, source=led.source_uri)
    led.until(lambda: led.began(feed))


def test_a_stored_uri_that_would_read_a_secondary_fails_its_changefeed_and_another_helps(
    led: Cluster, fresh_database: Callable[[], str]
) -> None:
    database, another = fresh_database(), fresh_database()
    elsewhere = "&readPreference=secondaryPreferred"
    stream = Capture.CHANGE_STREAM
    reads = led.create("reads", database, capture=stream, source=led.source_uri + elsewhere)
    led.until(lambda: led.state(reads) is State.FAILED)
    assert "configuration_invalid: source: its connection string: found readPreference" in led.error(reads)
    led.change(reads, capture=stream, source=led.source_uri)
    led.until(lambda: led.began(reads))
    writes = led.create("writes", another, sink=led.target_uri + elsewhere)
    led.until(lambda: led.began(writes))
    led.source[another].create_collection("orders")
    led.until(lambda: led.state(writes) is State.FAILED)
    assert "sink: its connection string: found readPreference=secondaryPreferred; Sluice" in led.error(writes)
    led.change(writes, sink=led.target_uri)
    led.until(lambda: led.settled(writes, 1))


def test_a_changefeed_created_paused_does_not_begin(led: Cluster, database: str) -> None:
    feed = led.create("asleep", database, desired=DesiredState.PAUSED)
    led.until(lambda: led.state(feed) is State.STOPPED)
    assert not led.began(feed)
    led.change(feed)
    led.until(lambda: led.began(feed))


def test_a_refused_ddl_waits_for_a_user_and_holds_no_other_table(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("refused", database)
    led.until(lambda: led.began(feed))
    target.create_collection("orders", capped=True, size=4096)
    source.create_collection("orders")
    source.create_collection("items")
    led.until(lambda: led.refusal(feed))
    assert "ddl_refused" in led.refusal(feed)
    assert f"{database}_to.orders exists at the target with other options" in led.refusal(feed)
    assert "then resume the table" in led.refusal(feed)
    source.create_collection("later")
    led.until(lambda: "later" in target.list_collection_names())
    assert led.state(feed) is State.NORMAL
    led.passes_now(feed)
    target["orders"].drop()
    led.resume_refused(feed)
    led.until(lambda: led.settled(feed, 3))
    assert sorted(target.list_collection_names()) == ["items", "later", "orders"]
    led.until(lambda: not led.stragglers(feed), "the new table catches up")


def test_a_refused_index_is_skipped_when_a_user_says_so(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("skipped", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1))
    target["orders"].insert_many([{"code": 1}, {"code": 1}])
    source["orders"].create_index("code", unique=True)
    led.until(lambda: led.refusal(feed))
    position = led.ddls(feed)[-1].position
    led.etcd.txn((), (Put(led.layout.skip(feed, position), encode(SkipRequest(position=position))),))
    led.until(lambda: led.settled(feed, 2) and not led.stragglers(feed))
    assert led.ddls(feed)[-1].state is DdlState.SKIPPED
    assert "a user skipped it" in led.ddls(feed)[-1].note
    led.until(lambda: led.etcd.get(led.layout.skip(feed, position)) is None)


def test_a_stopped_table_stands_while_others_go_on_and_its_drop_does_not_wait(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("stopped", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("items")
    led.until(lambda: led.settled(feed, 2) and len(led.assigned(feed)) == 2)
    orders = next(
        record.event.id
        for record in led.ddls(feed)
        if record.event.table == TableName(database, "orders") and record.event.id
    )
    led.ask(feed, orders, TableVerb.STOP)
    led.until(lambda: orders in led.stragglers(feed))
    source["orders"].create_index("code", unique=True)
    source["orders"].rename("old")
    led.passes_now(feed)
    assert "orders" in target.list_collection_names()
    led.ask(feed, orders, TableVerb.RESUME)
    led.until(lambda: "old" in target.list_collection_names() and not led.stragglers(feed))
    led.ask(feed, orders, TableVerb.STOP)
    led.until(lambda: orders in led.stragglers(feed))
    source["old"].rename("older")
    source["older"].drop()
    led.until(lambda: led.settled(feed, 6) and not led.stragglers(feed))
    assert target.list_collection_names() == ["items"]


def test_a_dropped_database_is_gone_at_the_target_without_waiting_for_its_stopped_table(
    led: Cluster, database: str
) -> None:
    source = led.source[database]
    feed = led.create("dropped", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    source.create_collection("items")
    led.until(lambda: led.settled(feed, 2) and len(led.assigned(feed)) == 2)
    orders = id_of(source, "orders")
    led.ask(feed, orders, TableVerb.STOP)
    led.until(lambda: orders in led.stragglers(feed))
    source["orders"].create_index("code", unique=True)
    led.passes_now(feed)
    assert not led.settled(feed, 3), "the index waits for the stopped table"
    led.source.drop_database(database)
    led.until(lambda: led.settled(feed, 5) and not led.stragglers(feed))
    assert f"{database}_to" not in led.target.list_database_names()
    led.until(lambda: led.assigned(feed) == {}, "no table with a node")
    assert led.state(feed) is State.NORMAL


def test_a_refused_unique_index_may_be_taken_out_by_the_filter(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("duplicates", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1))
    target["orders"].insert_many([{"code": 1}, {"code": 1}])
    source["orders"].create_index("code", unique=True)
    led.until(lambda: "createIndexes" in led.refusal(feed))
    rule = {"tables": [f"{database}.orders"], "ignore": ["createIndexes"]}
    led.change(feed, filter={"tables": [f"{database}.*"], "events": [rule]})
    led.until(lambda: led.settled(feed, 2))
    assert [record.state for record in led.ddls(feed)] == [DdlState.DONE, DdlState.SKIPPED]
    assert list(target["orders"].index_information()) == ["_id_"]


def test_what_the_target_cannot_express_waits_or_is_skipped_as_the_user_says(led: Cluster, database: str) -> None:
    """Two source tables share one target table, so the rows that a rename moves cannot be determined."""
    source = led.source[database]
    together = [{"from": f"{database}.*", "to": f"{database}_to.all"}]
    feed = led.create("fan", database, routes=[{"from": f"{database}.b", "to": f"{database}_to.own"}, *together])
    led.until(lambda: led.began(feed))
    source.create_collection("a")
    source.create_collection("other")
    source["a"].rename("b")
    led.until(lambda: "ddl_unsupported" in led.refusal(feed))
    led.change(feed, ddl={"unsupported": "skip"})
    led.until(lambda: led.settled(feed, 3))
    led.until(lambda: led.state(feed) is State.NORMAL)
    assert led.ddls(feed)[-1].state is DdlState.SKIPPED
    assert "cannot be told apart" in led.ddls(feed)[-1].note


def test_a_ddl_that_the_schemas_cannot_explain_fails_its_changefeed_alone(led: Cluster, database: str) -> None:
    feed = led.create("unexplained", database)
    led.until(lambda: led.began(feed))
    unknown = DdlEvent(
        position=now(led),
        type=DdlType.CREATE_INDEXES,
        db=database,
        table=TableName(database, "private"),
        id=TableId("0" * 32),
        description=Document.of({"indexes": []}),
    )
    led.record(feed, DdlRecord(event=unknown, scope=Scope(), state=DdlState.DONE, seen_at=datetime.now(UTC)))
    led.until(lambda: led.state(feed) is State.FAILED)
    assert "invariant_violated" in led.error(feed)
    led.change(feed, DesiredState.REMOVED)
    led.until(lambda: not led.exists(feed), "a removal of a failed changefeed")


def test_a_removed_changefeed_leaves_no_key_behind(led: Cluster, database: str) -> None:
    feed = led.create("removed", database)
    led.source[database].create_collection("orders")
    led.until(lambda: led.began(feed) and led.assigned(feed))
    led.change(feed, DesiredState.REMOVED)
    led.until(lambda: not led.exists(feed))


def test_a_restart_begins_again_where_the_user_says(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("restart", database)
    led.until(lambda: led.began(feed))
    source.create_collection("orders")
    led.until(lambda: led.settled(feed, 1))
    place = now(led)
    source["orders"].create_index("code", unique=True)
    led.until(lambda: led.settled(feed, 2))
    target["orders"].drop_index("code_1")
    led.change(feed, resume_from=place)
    led.until(lambda: led.obeyed(feed) and led.began(feed))
    led.until(lambda: led.settled(feed, 1) and "code_1" in target["orders"].index_information(), "the DDL again")
    status = led.status(feed)
    assert status is not None
    assert status.start == place


def test_a_start_in_the_past_takes_the_ddl_since(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    source.create_collection("kept")
    target.create_collection("kept")
    place = now(led)
    source["kept"].create_index("code", unique=True)
    source["kept"].rename("orders")
    source.create_collection("gone")
    source["gone"].drop()
    source.create_collection("new")
    feed = led.create("past", database, start=str(place.ts.next()))
    led.until(lambda: led.began(feed))
    led.until(lambda: led.settled(feed, 5), "all DDL since")
    assert sorted(target.list_collection_names()) == ["new", "orders"]
    assert "code_1" in target["orders"].index_information()


def test_a_target_time_finishes_the_changefeed_and_nothing_after_it_is_taken(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("until", database)
    led.until(lambda: led.began(feed))
    source.create_collection("before")
    last = now(led).ts.next()
    led.change(feed, target=str(last))
    led.until(lambda: led.obeyed(feed))
    source.create_collection("after")
    led.until(lambda: led.state(feed) is State.FINISHED)
    status = led.status(feed)
    assert status is not None
    assert status.checkpoint is not None
    assert status.checkpoint >= Position(last)
    assert target.list_collection_names() == ["before"]


def test_a_paused_changefeed_takes_nothing_and_loses_nothing(led: Cluster, database: str) -> None:
    source, target = led.source[database], led.target[f"{database}_to"]
    feed = led.create("paused", database)
    led.until(lambda: led.began(feed))
    led.change(feed, DesiredState.PAUSED)
    led.until(lambda: led.state(feed) is State.STOPPED)
    source.create_collection("orders")
    source["orders"].create_index("code")
    other = led.create("awake", database, routes=[{"from": f"{database}.*", "to": f"{database}_other.*"}])
    led.until(lambda: led.began(other))
    assert target.list_collection_names() == []
    led.change(feed)
    led.until(lambda: led.settled(feed, 2))
    assert "code_1" in target["orders"].index_information()


def test_two_changefeeds_of_one_source_each_take_their_own(led: Cluster, fresh_database: Callable[[], str]) -> None:
    one, two = fresh_database(), fresh_database()
    first, second = led.create("first", one), led.create("second", two)
    led.until(lambda: led.began(first) and led.began(second))
    led.target[f"{one}_to"].create_collection("orders", capped=True, size=4096)
    led.source[one].create_collection("orders")
    led.source[two].create_collection("orders")
    led.until(lambda: led.refusal(first) and led.settled(second, 1))
    assert led.state(second) is State.NORMAL
    assert led.target[f"{two}_to"].list_collection_names() == ["orders"]
