"""Which member of a replica set is read, according to the servers' own logs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import closing

import bson
import pytest

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.errors import ConfigurationError
from changefeed.position import Position
from changefeed.table import TableId, TableName
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.server import MongoDB
from source.connection import Client, connect, deployment_of
from source.majority_watch import MajorityWatch
from source.one_deployment import open_ddl_watch
from source.oplog.window import majority_time, newest_time, oplog_obstacle, read_oplog_window
from source.stream.note import NoteKeeper
from source.tables.catalog import read_catalog, read_stable_catalog
from source.tables.chunk_reader import Chunk, ChunkReader, ReadWay
from source.tables.chunks import divide
from source.tables.row_read import read_row

_TABLE = TableName("shop", "orders")
_TAGGED = "readPreference=secondary&readPreferenceTags=use:reports"
_OF_ALL = {"hello", "isMaster", "ismaster", "endSessions"}
"""Commands that every member receives, also from the driver."""


class Members:
    """A replica set of which one secondary has the tag for reports, and each member logs each command. `app`: this test's name there."""

    def __init__(self, standing: ReplicaSet) -> None:
        self.set = standing
        self.app = f"sluice-{uuid.uuid4().hex[:8]}"

    def connect(self, options: str) -> Client:
        return connect(f"{self.set.uri}&{options}", app_name=self.app, capture=Capture.OPLOG)

    @property
    def primary(self) -> MongoDB:
        return self.set.primary()

    @property
    def reports(self) -> MongoDB:
        with self.set.client() as client:
            configured = client.admin.command("replSetGetConfig")["config"]["members"]
        [address] = [member["host"] for member in configured if member.get("tags")]
        return next(member for member in self.set.members if self.set.address_of(member) == address)

    def served(self, member: MongoDB) -> set[str]:
        """The names of our commands in the member's log."""
        return set(self._commands(member)) - _OF_ALL

    def reading(self, command: str) -> list[MongoDB]:
        return [member for member in self.set.members if command in self.served(member)]

    def _commands(self, member: MongoDB) -> Iterator[str]:
        for line in member.log.read_text(encoding="utf-8").splitlines():
            attributes = json.loads(line).get("attr", {}) if self.app in line else {}
            if attributes.get("appName") == self.app and "command" in attributes:
                yield next(iter(attributes["command"]))


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    directory = tmp_path_factory.mktemp("preference")
    with ReplicaSet("rs", directory, directory, options=("--slowms", "-1")) as found:
        with found.client() as client:
            configuration = client.admin.command("replSetGetConfig")["config"]
            reports = found.address_of(found.secondaries()[0])
            for member in configuration["members"]:
                member["tags"] = {"use": "reports"} if member["host"] == reports else {}
            configuration["version"] += 1
            client.admin.command("replSetReconfig", configuration)
            client["shop"].get_collection("orders").insert_many([{"_id": n, "text": "x" * 1000} for n in range(3000)])
        yield found


@pytest.fixture
def members(standing: ReplicaSet) -> Iterator[Members]:
    standing.wait_until_whole()
    yield Members(standing)
    for member in standing.members:
        if not member.running:
            member.start()


def read_a_row(client: Client, id_: TableId) -> None:
    row = read_row(client, _TABLE, id_, bson.encode({"_id": 7}), not_before=majority_time(client))
    assert row is not None
    assert row.document is not None


def read_everything(client: Client) -> TableId:
    """Runs each kind of read of a source whose capture is the oplog."""
    assert oplog_obstacle(client) is None
    version = deployment_of(client).version
    window = read_oplog_window(client)
    assert window is not None
    MajorityWatch(client).look_at(majority_time(client))
    start = Position(majority_time(client).next())
    with closing(open_ddl_watch(client, start, Capture.OPLOG)) as watch:
        watch.poll()
    [schema] = read_catalog(client, lambda name: name == _TABLE).tables
    divide(client, schema, chunk_bytes=1 << 20)
    ways = [ReadWay.SNAPSHOT, ReadWay.WATERMARK] if version >= (5, 0) else [ReadWay.WATERMARK]
    for way in ways:
        chunk = ChunkReader(client, Chunk(table=_TABLE, not_before=Position(ClusterTime(0, 0))), way)
        assert sum(map(len, chunk.batches())) == 3000
    read_a_row(client, schema.id)
    return schema.id


@pytest.mark.parametrize(
    ("preference", "which"),
    [
        ("readPreference=secondary", "one secondary"),
        ("readPreference=secondaryPreferred&maxStalenessSeconds=90", "one secondary"),
        (_TAGGED, "the tagged"),
        ("readPreference=nearest", "one"),
        ("readPreference=primaryPreferred", "the primary"),
        ("retryReads=true", "the primary"),
    ],
)
def test_all_reads_go_to_one_member_of_those_that_are_preferred_and_writes_to_the_primary(
    members: Members, preference: str, which: str
) -> None:
    primary = members.primary
    with members.connect(preference) as client:
        client.admin.command("hello")  # a primary is preferred only once it is discovered
        NoteKeeper(client).write(newest_time(client))
        read_everything(client)
    [reading] = members.reading("listCollections")
    match which:
        case "one secondary":
            assert reading is not primary
        case "the tagged":
            assert reading is members.reports
        case "the primary":
            assert reading is primary
    division = "splitVector" if preference == "retryReads=true" else "aggregate"  # secondaries refuse `splitVector`
    assert {"find", "dataSize", division, "listDatabases", "listIndexes", "ping"} <= members.served(reading)
    assert "appendOplogNote" in members.served(primary)
    for member in members.set.members:
        if member is not reading:
            assert members.served(member) <= {"appendOplogNote"}


def test_another_is_read_when_the_member_is_gone_and_then_stayed_with(members: Members) -> None:
    with members.connect("readPreference=secondary&serverSelectionTimeoutMS=180000") as client:
        id_ = read_everything(client)
        [first] = members.reading("find")
        first.kill()
        [second] = [member for member in members.set.secondaries() if member is not first]
        read_a_row(client, id_)
        first.start()
        members.set.wait_until_whole()
        read_everything(client)
    assert "listCollections" in members.served(second)
    assert "listCollections" in members.served(first)  # before it was killed
    assert members.served(members.primary) == set()


def test_a_secondary_is_read_while_there_is_no_primary(members: Members) -> None:
    with members.connect("readPreference=secondary&serverSelectionTimeoutMS=180000") as client:
        start = Position(majority_time(client).next())
        id_ = read_everything(client)
        [reading] = members.reading("find")
        for other in members.set.members:
            if other is not reading:
                other.kill()
        with closing(open_ddl_watch(client, start, Capture.OPLOG)) as watch:
            watch.poll()
        read_a_row(client, id_)


def test_a_catalog_is_read_from_the_member_whose_ddl_is_watched(members: Members) -> None:
    with members.connect("readPreference=secondary") as client:
        reading = read_stable_catalog(
            client, lambda name: name == _TABLE, lambda start: open_ddl_watch(client, start, Capture.OPLOG)
        )
    assert [schema.name for schema in reading.tables] == [_TABLE]
    assert members.served(members.primary) == set()


def test_change_streams_read_no_other_than_the_primary(source_uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"found readPreference=secondary; .* or read the oplog"):
        connect(f"{source_uri}{'&' if '?' in source_uri else '/?'}readPreference=secondary")
