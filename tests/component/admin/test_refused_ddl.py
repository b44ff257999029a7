"""What a user can do by the API about a DDL that the target refuses, with a real source and target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import admin_pb2_grpc as rpc
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from devstack.mongodb.server import Client
from devstack.scripted_processor import ScriptedProcessor
from tests.component.node.server_process import Server
from tests.component.source.odd_texts import no_utf8
from tests.until import until

_SECONDS = 30.0


class Feed:
    def __init__(self, channel: Any, id: str, source: Any, target: Any) -> None:
        self.id = id
        self.source, self.target = source, target
        self._ddls = rpc.DdlServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._tables = rpc.TableServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        self._changefeeds = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated

    def update(self, *tables: str) -> None:
        """While it runs."""
        patterns = [f"{'!' * name.startswith('!')}{self.id}.{name.removeprefix('!')}" for name in tables]
        request = pb.UpdateChangefeedRequest(id=self.id, tables=patterns)
        self._changefeeds.UpdateChangefeed(request, timeout=_SECONDS)

    def tables(self) -> set[str]:
        listed = self._tables.ListTables(pb.ListTablesRequest(changefeed=self.id), timeout=_SECONDS)
        return {table.name.rpartition(".")[2] for page in listed for table in page.tables}

    def ddls(self) -> list[pb.Ddl]:
        return list(self._ddls.ListDdl(pb.ListDdlRequest(changefeed=self.id), timeout=_SECONDS))

    def until_refused(self, type: str) -> pb.Ddl:
        """The DDL of this type, once it waits for a user."""

        def waiting() -> list[pb.Ddl]:
            return [ddl for ddl in self.ddls() if ddl.type == type and ddl.HasField("refused")]

        until(waiting, f"the refusal of {type}")
        [refused] = waiting()
        return refused

    def skip(self, table: str) -> pb.Ddl:
        request = pb.SkipDdlRequest(changefeed=self.id, ddl=f"{self.id}.{table}")
        skipped: pb.Ddl = self._ddls.SkipDdl(request, timeout=_SECONDS)
        return skipped

    def recopy(self, table: str) -> None:
        request = pb.RecopyTablesRequest(changefeed=self.id, tables=[f"{self.id}.{table}"])
        self._tables.RecopyTables(request, timeout=_SECONDS)


@pytest.fixture
def feed(
    server: Server,
    channel: Any,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
    etcd_endpoint: str,
) -> Iterator[Feed]:
    configuration = {"id": database, "source": source_uri, "sink": target_uri, "start": "now"}
    written = yaml.safe_dump(configuration | {"filter": {"tables": [f"{database}.*"]}})
    changefeeds = rpc.ChangefeedServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
    with (
        EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,))) as etcd,
        ScriptedProcessor(etcd, Layout(server.cluster), "p1"),
    ):
        changefeeds.CreateChangefeed(pb.CreateChangefeedRequest(configuration=written), timeout=_SECONDS)
        asked = pb.GetChangefeedRequest(id=database)
        until(lambda: changefeeds.GetChangefeed(asked, timeout=_SECONDS).checkpoint, "the beginning")
        yield Feed(channel, database, source_client[database], target_client[database])
        changefeeds.RemoveChangefeed(pb.RemoveChangefeedRequest(id=database), timeout=_SECONDS)


def _refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        call(*arguments)
    return str(refused.value.details())


def _unskippable(what: str, ddl: pb.Ddl) -> str:
    return (
        f"{what} at {ddl.position} cannot be skipped, since later changes depend on it (only createIndexes, dropIndexes, modify can): "
        "remove the cause at the target and resume the table (`sluice table resume`)"
    )


def test_a_refused_dropindexes_and_a_refused_modify_are_skipped_and_their_table_goes_on(feed: Feed) -> None:
    feed.source["orders"].create_index("code", unique=True)
    until(lambda: "code_1" in feed.target["orders"].index_information(), "the index")
    feed.target["orders"].drop()
    feed.target.create_collection("orders", viewOn="another", pipeline=[])
    feed.source["orders"].drop_index("code_1")
    refused = feed.until_refused("dropIndexes").refused.message
    assert "is a view, not a collection" in refused
    skipped = feed.skip("orders")
    assert (skipped.type, skipped.state) == ("dropIndexes", "skipped")
    feed.source.command("collMod", "orders", validator={"total": {"$gte": 0}})
    refused = feed.until_refused("modify").refused.message
    assert "option not supported on a view: validator" in refused
    skipped = feed.skip("orders")
    assert (skipped.type, skipped.state, skipped.note) == ("modify", "skipped", f"a user skipped it; {refused}")
    feed.source["orders"].drop()
    until(lambda: "orders" not in feed.target.list_collection_names(), "a later DDL of the table")


def test_a_refused_rename_is_not_skipped_and_can_only_be_resumed(feed: Feed) -> None:
    feed.source.create_collection("orders")
    until(lambda: "orders" in feed.target.list_collection_names(), "the table")
    feed.target.create_collection("bills")
    feed.source["orders"].rename("bills")
    rename = feed.until_refused("rename")
    said = _unskippable(f"rename {feed.id}.orders to {feed.id}.bills", rename)
    assert _refusal(feed.skip, "orders") == said
    assert "a DDL that waits for a user and comes first" in _refusal(feed.recopy, "orders")


def test_a_refused_create_is_not_skipped_and_its_table_can_be_copied_anew(feed: Feed) -> None:
    feed.target.create_collection("orders", capped=True, size=4096)
    feed.source.create_collection("orders")
    create = feed.until_refused("create")
    assert "exists at the target with other options" in create.refused.message
    assert "or have the table copied anew (`sluice table recopy`)" in create.refused.message
    said = _unskippable(f"create {feed.id}.orders", create)
    assert _refusal(feed.skip, "orders") == f"{said}, or have the table copied anew (`sluice table recopy`)"
    feed.recopy("orders")
    begun = {"create": "skipped", "leave": "skipped", "enter": "skipped"}
    until(lambda: {ddl.type: ddl.state for ddl in feed.ddls()} == begun, "the copy begins")


def test_a_table_whose_ddl_nobody_can_follow_is_left_out_and_taken_in_again_while_the_others_go_on(feed: Feed) -> None:
    for name in ("orders", "strict"):
        feed.source.create_collection(name)
    feed.source.command("collMod", "strict", validator=no_utf8({"a": {"$ne": "caf?"}}))
    feed.target.create_collection("notes", capped=True, size=4096)
    feed.source.create_collection("notes")
    unknown, _ = feed.until_refused("unknown"), feed.until_refused("create")
    assert (
        "leave them out (filter.tables) by `sluice changefeed update`, drop them at the target"
        in unknown.refused.message
    )
    said = _refusal(feed.update, "*", "!strict")
    assert f"create {feed.id}.notes" in said
    assert "leave their tables out, too" in said
    feed.update("*", "!strict", "!notes")
    until(lambda: feed.tables() == {"orders"}, "the table is left out")
    feed.source.command("collMod", "strict", validator={})
    feed.source.create_collection("bills")
    until(lambda: "bills" in feed.target.list_collection_names(), "the owner has passed the last DDL of the table")
    feed.target["strict"].drop()
    feed.update("*", "!notes")
    until(lambda: feed.tables() == {"orders", "bills", "strict"}, "it is taken in again")
    feed.source["orders"].drop()
    until(lambda: "orders" not in feed.target.list_collection_names(), "the other table goes on")
    assert not [ddl for ddl in feed.ddls() if ddl.HasField("refused")]
