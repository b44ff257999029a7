"""Every kind of DDL against a server: once, twice, and after a crash following each command."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from bson.binary import Binary
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from changefeed.config.configuration import Ttl
from changefeed.documents.document import EMPTY, Document
from changefeed.errors import DdlAmbiguous, DdlRefused, FencedError, SinkUnavailable
from changefeed.event import DdlType
from changefeed.records.ddl import Observation
from changefeed.table import TableName
from devstack.mongodb.server import MongoDB
from devstack.process import wait_until
from sink.ddl import (
    CreateTable,
    DropIndexes,
    RenameTable,
    ShardTable,
    SingleDdl,
    Skip,
    names_of,
)
from sink.mongodb.connection import connect
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.ddl.ddl_commands import DdlCommand, Target, commands
from tests.component.sink.mongodb.ddl.ddl_cases import (
    CASES,
    Case,
    Database,
    create,
    create_indexes,
    documents,
    drop,
    indexed,
    indexes,
    modify,
    one_row,
    options,
    rename,
    two_tables,
)

Reply = dict[str, Any]
Client = MongoClient[dict[str, Any]]


@pytest.fixture
def applier(target_uri: str) -> Iterator[MongoDdlApplier]:
    made = MongoDdlApplier(connect(target_uri), permit=ten_minutes)
    yield made
    made.close()


@pytest.fixture
def db(target_client: Client, database: str) -> Database:
    return target_client[database]


def ten_minutes() -> float:
    return 600.0


every_case = pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=pytest.mark.since(case.since)) for name, case in CASES.items()]
)


@every_case
def test_a_ddl_is_done_and_doing_it_again_changes_nothing(case: Case, applier: MongoDdlApplier, db: Database) -> None:
    case.prepare(db)
    ddl = case.ddl(db.name)
    before = applier.observe(names_of(ddl))
    applier.apply(ddl, before)
    assert case.after(db)
    done = applier.observe(names_of(ddl))
    applier.apply(ddl, before)
    assert case.after(db)
    assert applier.observe(names_of(ddl)) == done


@every_case
def test_a_crash_behind_any_command_ends_in_one_effect(
    case: Case, applier: MongoDdlApplier, target_uri: str, target_client: Client, db: Database
) -> None:
    """The writer dies after n of the DDL's commands reached the target; another takes over with the recorded observation."""
    ddl = case.ddl(db.name)
    target = Target(wire=target_client.admin.command("hello")["maxWireVersion"], sharded=False)
    case.prepare(db)
    steps = len(commands(ddl, applier.observe(names_of(ddl)), target, Ttl.DEFERRED))
    assert steps
    for reached in range(steps + 1):
        target_client.drop_database(db.name)
        case.prepare(db)
        before = applier.observe(names_of(ddl))
        for command in commands(ddl, before, target, Ttl.DEFERRED)[:reached]:
            target_client[command.db].command(dict(command.body))
        with connect(target_uri) as client:
            MongoDdlApplier(client, permit=ten_minutes).apply(ddl, before)
        assert case.after(db)


class WatchedClient:
    """Passes each command, with a function that sends it, to `answer`."""

    def __init__(self, client: Client, answer: Callable[[Callable[[], Reply], Reply], Reply]) -> None:
        self._client = client
        self._answer = answer
        self.admin = client.admin
        self.get_database = client.get_database

    def __getitem__(self, db: str) -> WatchedDatabase:
        return WatchedDatabase(self._client[db], self._answer)


class WatchedDatabase:
    def __init__(self, db: Database, answer: Callable[[Callable[[], Reply], Reply], Reply]) -> None:
        self._db = db
        self._answer = answer

    def command(self, body: Reply) -> Reply:
        return self._answer(lambda: dict(self._db.command(body)), body)


@every_case
def test_a_command_that_finishes_under_the_feet_of_its_repetition_is_done_once(
    case: Case, target_client: Client, db: Database
) -> None:
    """The first command was believed lost with its connection, but took effect."""

    def sent_twice(send: Callable[[], Reply], _: Reply) -> Reply:
        send()
        return send()

    case.prepare(db)
    ddl = case.ddl(db.name)
    applier = MongoDdlApplier(cast("Client", WatchedClient(target_client, sent_twice)), permit=ten_minutes)
    applier.apply(ddl, applier.observe(names_of(ddl)))
    assert case.after(db)


def test_a_ddl_without_its_majority_is_not_done_until_the_majority_has_it(
    applier: MongoDdlApplier, target_client: Client, db: Database
) -> None:
    sent: list[Reply] = []
    lonely = {"code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting for replication timed out"}

    def primary_alone(send: Callable[[], Reply], body: Reply) -> Reply:
        reply = send()
        sent.append(body)
        return reply | ({"writeConcernError": lonely} if len(sent) < 3 else {})

    ddl = create("a")(db.name)
    before = applier.observe(names_of(ddl))
    lonely_applier = MongoDdlApplier(cast("Client", WatchedClient(target_client, primary_alone)), permit=ten_minutes)
    for _ in range(2):
        with pytest.raises(SinkUnavailable, match="not durable at the target yet"):
            lonely_applier.apply(ddl, before)
    assert lonely_applier.apply(ddl, before) == "it was done already"
    assert [next(iter(body)) for body in sent] == ["create", "delete", "delete"], "a create of what is there is refused"
    assert all(body["writeConcern"]["w"] == "majority" for body in sent)
    assert db.list_collection_names() == ["a"]


@pytest.mark.parametrize("refused_with", [26, 48])
def test_a_refusal_that_the_majority_does_not_have_is_not_taken_at_its_word(
    refused_with: int, applier: MongoDdlApplier, target_client: Client, db: Database
) -> None:
    """It is neither taken as done (26: nothing to drop) nor as a refusal: servers wait for the majority first, and report when it does not come."""

    def primary_alone(send: Callable[[], Reply], body: Reply) -> Reply:
        if "drop" not in body:
            return send()
        lonely = {"code": 64, "errmsg": "waiting for replication timed out"}
        raise OperationFailure("no", refused_with, {"ok": 0, "code": refused_with, "writeConcernError": lonely})

    one_row(db)
    ddl = drop("a")(db.name)
    before = applier.observe(names_of(ddl))
    with pytest.raises(SinkUnavailable, match="not durable at the target yet"):
        MongoDdlApplier(cast("Client", WatchedClient(target_client, primary_alone)), permit=ten_minutes).apply(
            ddl, before
        )


def test_a_rename_across_databases_moves_the_rows_once(
    applier: MongoDdlApplier, target_client: Client, fresh_database: Callable[[], str]
) -> None:
    here, there = target_client[fresh_database()], target_client[fresh_database()]
    indexed(here)
    ddl = RenameTable(name=TableName(here.name, "a"), to=TableName(there.name, "a"), replaces=False)
    before = applier.observe(names_of(ddl))
    applier.apply(ddl, before)
    applier.apply(ddl, before)
    assert here.list_collection_names() == []
    assert documents(there, "a") == [{"_id": 1, "x": 1}]
    assert indexes(there, "a").keys() == {"_id_", "x_1", "y_1"}


def test_what_is_observed_is_what_stands_there(applier: MongoDdlApplier, db: Database) -> None:
    db.create_collection("a", capped=True, size=4096)
    db.command({"create": "v", "viewOn": "a", "pipeline": []})
    a, view, free = (TableName(db.name, name) for name in ("a", "v", "free"))
    seen = applier.observe([a, view, free])
    table = seen.tables[a]
    assert table is not None
    (entry,) = db.list_collections(filter={"name": "a"})
    assert table.uuid == Binary(entry["info"]["uuid"]).hex()
    assert table.options == Document.of({"capped": True, "size": 4096})
    assert [index.decode()["name"] for index in table.indexes] == ["_id_"]
    seen_view = seen.tables[view]
    assert seen_view is not None
    assert seen_view.uuid is None
    assert seen.tables[free] is None


def test_a_table_replaced_at_the_target_meanwhile_is_not_touched(applier: MongoDdlApplier, db: Database) -> None:
    one_row(db)
    ddl = drop("a")(db.name)
    before = applier.observe(names_of(ddl))
    db.a.drop()
    db.a.insert_one({"_id": "somebody else's"})
    with pytest.raises(DdlAmbiguous, match=r"neither as before this DDL nor as after it.*Another client changed it"):
        applier.apply(ddl, before)
    assert documents(db, "a") == [{"_id": "somebody else's"}]


@pytest.mark.parametrize(
    "ddl", [drop("a"), modify("a", validator={"x": 1}), create_indexes({"key": {"x": 1}, "name": "x_1"}), rename(False)]
)
@pytest.mark.since("6.0")
def test_the_target_itself_refuses_a_command_meant_for_another_table(
    ddl: Callable[[str], SingleDdl], applier: MongoDdlApplier, target_client: Client, db: Database
) -> None:
    """A table is replaced between the observation and the command; the command's `collectionUUID` protects it."""
    one_row(db)
    asked = ddl(db.name)
    looked = applier.observe(names_of(asked))
    db.a.drop()
    db.a.insert_one({"_id": "somebody else's"})
    target = Target(wire=target_client.admin.command("hello")["maxWireVersion"], sharded=False)
    with pytest.raises(DdlAmbiguous, match="UUID"):
        applier.run(commands(asked, looked, target, Ttl.DEFERRED))
    assert documents(db, "a") == [{"_id": "somebody else's"}]


@pytest.fixture(scope="module")
def half_upgraded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MongoDB]:
    """A 6.0 that still has the features of 5.0, as in the midst of an upgrade."""
    directory = tmp_path_factory.mktemp("half-upgraded")
    with MongoDB("half", directory / "data", directory / "log") as server:
        with server.client() as client:
            client.admin.command("setFeatureCompatibilityVersion", "5.0")
        yield server


@pytest.mark.parametrize(
    "name",
    ["createIndexes of several kinds", "dropIndexes", "collMod validator", "drop", "rename", "rename replacing"],
)
@pytest.mark.since("6.0")
def test_a_target_in_the_midst_of_an_upgrade_gets_commands_without_uuids(
    name: str, half_upgraded: MongoDB, database: str
) -> None:
    case = CASES[name]
    with Client(half_upgraded.uri) as client, connect(half_upgraded.uri) as connected:
        case.prepare(client[database])
        ddl = case.ddl(database)
        applier = MongoDdlApplier(connected, permit=ten_minutes)
        assert applier.apply(ddl, applier.observe(names_of(ddl))) == ""
        assert case.after(client[database])


def test_a_create_over_a_table_with_other_options_says_what_differs(applier: MongoDdlApplier, db: Database) -> None:
    one_row(db)
    ddl = create("a", capped=True, size=8192)(db.name)
    with pytest.raises(DdlRefused, match=r"exists at the target with other options: capped is True at the source"):
        applier.apply(ddl, applier.observe(names_of(ddl)))
    assert options(db, "a") == {}


def test_a_create_over_an_alike_table_takes_it_as_it_is(applier: MongoDdlApplier, db: Database) -> None:
    one_row(db)
    ddl = create("a", validationLevel="strict")(db.name)
    assert applier.apply(ddl, applier.observe(names_of(ddl))) == "it was done already"
    assert documents(db, "a") == [{"_id": 1, "x": 1}]


def test_indexes_never_create_their_table(applier: MongoDdlApplier, db: Database) -> None:
    ddl = create_indexes({"key": {"x": 1}, "name": "x_1"})(db.name)
    with pytest.raises(DdlRefused, match="does not exist at the target"):
        applier.apply(ddl, applier.observe(names_of(ddl)))
    assert db.list_collection_names() == []


def test_a_unique_index_over_duplicates_names_the_key_and_the_command(applier: MongoDdlApplier, db: Database) -> None:
    db.a.insert_many([{"_id": 1, "code": "A7"}, {"_id": 2, "code": "A7"}])
    ddl = create_indexes({"key": {"code": 1}, "name": "code_1", "unique": True})(db.name)
    with pytest.raises(DdlRefused) as refused:
        applier.apply(ddl, applier.observe(names_of(ddl)))
    assert f"createIndexes on {db.name}.a" in str(refused.value)
    assert "{'code': 'A7'}" in str(refused.value)
    assert '"createIndexes": "a"' in str(refused.value)
    assert "code_1" not in indexes(db, "a")


@pytest.mark.parametrize(
    "ddl",
    [create("b", shape="round"), create_indexes({"key": {"x": 1}, "name": "x_1", "shape": "round"})],
    ids=["create", "createIndexes"],
)
def test_an_option_that_the_target_does_not_know_is_told_with_what_helps(
    ddl: Callable[[str], SingleDdl], applier: MongoDdlApplier, db: Database
) -> None:
    one_row(db)
    asked = ddl(db.name)
    with pytest.raises(DdlRefused) as refused:
        applier.apply(asked, applier.observe(names_of(asked)))
    message = str(refused.value)
    assert "shape" in message.partition("(code ")[0]
    assert "the target's version does not know this option: upgrade it, or let the filter ignore this DDL" in message
    assert "sluice table resume" in message
    assert "sluice table recopy" in message
    assert db.list_collection_names() == ["a"]
    assert indexes(db, "a").keys() == {"_id_"}


def test_an_owner_that_lost_its_session_sends_no_further_command(target_uri: str, db: Database) -> None:
    two_tables(db)
    ddl = drop("a", "b")(db.name)
    seconds_left = iter([1.0, 1.0, 0.0])  # an observation that is confirmed, and the first of two drops
    with connect(target_uri) as client:
        applier = MongoDdlApplier(client, permit=lambda: next(seconds_left))
        with pytest.raises(FencedError, match="may no longer be the owner"):
            applier.apply(ddl, applier.observe(names_of(ddl)))
    assert db.list_collection_names() == ["b"]


@every_case
def test_what_is_brief_takes_effect_within_the_permit_or_never(case: Case, target_uri: str, db: Database) -> None:
    """The server aborts what it could not do in time. Builds, sharding and renames into another database have no time limit."""
    limits: dict[str, int | None] = {}

    class Listener(CommandListener):
        def started(self, event: CommandStartedEvent) -> None:
            names = {str(event.command.get(field)).partition(".")[0] for field in ("renameCollection", "to")}
            limits[f"{event.command_name} afar" if len(names) > 1 else event.command_name] = event.command.get(
                "maxTimeMS"
            )

        def succeeded(self, event: CommandSucceededEvent) -> None: ...

        def failed(self, event: CommandFailedEvent) -> None: ...

    case.prepare(db)
    ddl = case.ddl(db.name)
    with MongoClient[dict[str, Any]](target_uri, event_listeners=[Listener()]) as client:
        applier = MongoDdlApplier(client, permit=lambda: 7.0)
        applier.apply(ddl, applier.observe(names_of(ddl)))
    for verb in ("create", "collMod", "dropIndexes", "drop", "renameCollection"):
        assert 0 < (limits.get(verb, 1) or 0) <= 7_000
    for verb in ("createIndexes", "renameCollection afar"):
        assert limits.get(verb) is None


def test_cut_over_commands_run_through_the_same_door(applier: MongoDdlApplier, db: Database) -> None:
    indexed(db)
    applier.run([DdlCommand(db.name, {"collMod": "a", "index": {"name": "y_1", "expireAfterSeconds": 3600}})])
    assert indexes(db, "a")["y_1"]["expireAfterSeconds"] == 3600


def test_sharding_is_noted_and_left_at_a_target_that_is_not_sharded(applier: MongoDdlApplier, db: Database) -> None:
    ddl = ShardTable(name=TableName(db.name, "a"), how=DdlType.SHARD_COLLECTION, description=EMPTY)
    assert applier.apply(ddl, Observation(tables={})) == "the target is not sharded"


def test_a_skip_says_why_and_asks_the_target_nothing() -> None:
    with MongoDdlApplierToNowhere() as applier:
        assert applier.apply(Skip(note="outside the filter"), Observation(tables={})) == "outside the filter"


def test_a_target_that_is_away_is_worth_a_retry() -> None:
    with MongoDdlApplierToNowhere() as applier, pytest.raises(SinkUnavailable, match="cannot be reached"):
        applier.observe([TableName("shop", "orders")])


@pytest.mark.since("5.0")  # 4.4.2 does not restart if it is killed in its first second
def test_a_target_killed_between_look_and_command_gets_the_ddl_after_its_return(
    own_mongodb: Callable[[str], MongoDB],
) -> None:
    server = own_mongodb("target")
    a = TableName("shop", "a")
    ddl = CreateTable(name=a, options=Document.of({"capped": True, "size": 4096}))
    applier = MongoDdlApplier(connect(f"{server.uri}&serverSelectionTimeoutMS=300"), permit=ten_minutes)
    before = applier.observe([a])
    server.kill()
    with pytest.raises(SinkUnavailable, match="cannot be reached"):
        applier.apply(ddl, before)
    server.start()
    applier.close()
    with connect(server.uri) as client:
        assert MongoDdlApplier(client, permit=ten_minutes).apply(ddl, before) == ""
        assert options(client["shop"], "a") == {"capped": True, "size": 4096}


class MongoDdlApplierToNowhere:
    """Port 1 is reserved and nothing listens on it."""

    def __enter__(self) -> MongoDdlApplier:
        self._applier = MongoDdlApplier(
            connect("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50"), permit=ten_minutes
        )
        return self._applier

    def __exit__(self, *_: object) -> None:
        self._applier.close()
        self._applier.close()


def test_dates_of_all_years_may_stand_in_definitions(applier: MongoDdlApplier, db: Database) -> None:
    far, name = DatetimeMS(2**48), TableName(db.name, "a")
    for ddl in (
        create("a", validator={"at": {"$lt": far}}),
        create_indexes({"key": {"a": 1}, "name": "a", "partialFilterExpression": {"at": far}}),
    ):
        applier.apply(ddl(db.name), applier.observe([name]))
    found = applier.observe([name]).tables[name]
    assert found is not None
    assert found.options.decode()["validator"] == {"at": {"$lt": far}}
    assert found.indexes[1].decode()["partialFilterExpression"] == {"at": far}


def test_an_index_is_not_dropped_while_a_command_to_build_it_waits_at_the_target(
    applier: MongoDdlApplier, target_client: Client, db: Database
) -> None:
    """An earlier owner's: it would build the index again afterwards (simulation, seed 9814974)."""
    db.rows.insert_one({"_id": 1, "g": 1})
    db.others.create_index("g")
    most = target_client.admin.command({"getParameter": 1, "maxNumActiveUserIndexBuilds": 1})
    target_client.admin.command({"setParameter": 1, "maxNumActiveUserIndexBuilds": 0})
    waiting = threading.Thread(target=db.rows.create_index, args=("g",))
    waiting.start()
    try:
        [drop_waits, drop_other] = [
            DropIndexes(name=TableName(db.name, coll), indexes=("g_1",)) for coll in ("rows", "others")
        ]
        assert wait_until(lambda: bool(_builds_seen(target_client, "rows")), 30)
        applier.apply(drop_other, applier.observe(names_of(drop_other)))
        assert "g_1" not in indexes(db, "others")
        with pytest.raises(SinkUnavailable, match="a createIndexes on it that was sent before has not ended"):
            applier.apply(drop_waits, applier.observe(names_of(drop_waits)))
    finally:
        target_client.admin.command(
            {"setParameter": 1, "maxNumActiveUserIndexBuilds": most["maxNumActiveUserIndexBuilds"]}
        )
        waiting.join()
    applier.apply(drop_waits, applier.observe(names_of(drop_waits)))
    assert "g_1" not in indexes(db, "rows")


def _builds_seen(client: Client, coll: str) -> list[Any]:
    return list(client.admin.aggregate([{"$currentOp": {}}, {"$match": {"command.createIndexes": coll}}]))
