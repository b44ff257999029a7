"""`Demo`: replicates a shop while its developers change the schema, then compares the source with what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from cli import cells
from cli.channel import Connection
from devstack.demo.cluster_shop import ClusterShop
from devstack.demo.message_places import MessagesInFiles, MessagesInTopics
from devstack.demo.outcome import DemoFailed, Messages, Outcome, ThroughMessages, verified
from devstack.demo.owner_killed import OwnerKilled
from devstack.demo.shop import ReplicaSetShop, Shop
from devstack.demo.spark_query import SparkQuery
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.sharded.cluster import ShardedCluster
from devstack.stack import DevStack

_ID = "shop-to-dr"
_CONFIGURATION = """
id: shop-to-dr
source: {source}
sink: {sink}
start: initial
filter: {{tables: ["shop.*"]}}
"""
_REPLICA = """
routes: [{from: "shop.*", to: "shop_dr.*"}]
sync_points: {every: 10s}
"""
_SCENE_SECONDS = 2.5
_PATIENCE_SECONDS = 90.0
_REFRESH_SECONDS = 0.15


class Demo:
    """Draws tables on a terminal; otherwise it prints a line for each scene."""

    def __init__(self, cluster: OwnerKilled, console: Console, shop: Shop, outcome: Outcome) -> None:
        self._cluster = cluster
        self._console = console
        self._shop = shop
        self._outcome = outcome
        self._start = ""
        self._point = pb.SyncPoint()

    @property
    def _connection(self) -> Connection:
        return self._cluster.connection

    def play(self, configuration: str) -> bool:
        """Whether what came of it is identical with the source at the end."""
        self._shop.stock()
        created = pb.CreateChangefeedRequest(configuration=configuration)
        self._connection.ask(self._connection.changefeeds.CreateChangefeed, created)
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._narrate("the shop's tables are copied while it is open")
            self._shop.open()
            self._until(live, "the initial copy", self._copied)
            for scene in self._shop.scenes():
                self._narrate(scene.text)
                if scene.owner_dies:
                    self._cluster.happen(self._narrate)
                self._watch(live, _SCENE_SECONDS)
                if scene.before_an_accident:
                    self._cluster.prepare()
            if "sync_points" in configuration:
                self._prove(live)
            self._shop.close()
            end = Position(self._shop.time())
            self._narrate("the shop is closed; replication applies the last changes")
            self._until(live, "the end of replication", lambda: self._passed(end))
        return self._summary()

    def _narrate(self, text: str) -> None:
        self._console.print(Text.assemble(("  ▸ ", "cyan"), text), soft_wrap=True)

    def _watch(self, live: Live, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._draw(live)
            time.sleep(_REFRESH_SECONDS)

    def _until(self, live: Live, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"{what} was not reached within {_PATIENCE_SECONDS:.0f} s: {self._feed().error.message or 'no error'}"
                )
            self._draw(live)
            time.sleep(_REFRESH_SECONDS)

    def _feed(self) -> pb.Changefeed:
        feed: pb.Changefeed = self._connection.ask(
            self._connection.changefeeds.GetChangefeed, pb.GetChangefeedRequest(id=_ID)
        )
        return feed

    def _tables(self) -> list[pb.Table]:
        return sorted(self._connection.tables_of(_ID), key=lambda table: table.name)

    def _ddls(self) -> list[pb.Ddl]:
        return list(self._connection.stream(self._connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=_ID)))

    def _copied(self) -> bool:
        """A table's position leaves the changefeed's start when its copy is done; the checkpoint leaves it when all copies are done."""
        checkpoint = self._feed().checkpoint
        self._start = self._start or checkpoint
        return checkpoint != self._start

    def _prove(self, live: Live) -> None:
        """While customers buy: what both sides were at one sync point is compared."""
        since = self._shop.time()
        self._until(live, "a sync point", lambda: self._at_a_point(since))
        source, target = self._point.source_ts, self._point.target_ts
        self._narrate(
            f"a sync point, while customers buy: the source as of {source} and the target as of {target} are the same"
        )
        result = verified(self._connection, self._console, _ID, at=source)
        if not result.identical:
            raise DemoFailed(f"at the sync point {source}: {result.text}")
        self._narrate(f"both are read there, with snapshots: {result.text}")

    def _at_a_point(self, since: ClusterTime) -> bool:
        self._point = self._feed().sync_points.newest
        made = bool(self._point.source_ts) and ClusterTime.parse(self._point.source_ts) > since
        return made and not self._point.excepted

    def _passed(self, end: Position) -> bool:
        feed = self._feed()
        return not feed.open_ddls and bool(feed.checkpoint) and Position.parse(feed.checkpoint) > end

    def _draw(self, live: Live) -> None:
        if self._console.is_terminal:
            ddls = self._ddls()[-6:]
            views = [self._table_view(), *([self._ddl_view(ddls)] if ddls else [])]
            live.update(Group(*views), refresh=True)

    def _table_view(self) -> Table:
        feed = self._feed()
        title = f"{feed.id}: {self._shop.writes:,} writes, lag {cells.seconds(feed)}"
        view = Table(title=title, title_justify="left")
        for column in ("table", "downstream", "checkpoint", "gate"):
            view.add_column(column)
        for table in self._tables():
            view.add_row(table.name, table.target, _clock(table.checkpoint), _gate(table))
        return view

    def _ddl_view(self, ddls: Sequence[pb.Ddl]) -> Table:
        view = Table(title="schema changes", title_justify="left")
        for column in ("change", "table", "state", "gate closed"):
            view.add_column(column)
        for ddl in ddls:
            view.add_row(ddl.type, _subject(ddl), ddl.state, _closed(ddl))
        return view

    def _summary(self) -> bool:
        tables = self._tables()
        self._console.print()
        self._console.print(self._ddl_view([ddl for ddl in self._ddls() if ddl.state in ("done", "skipped")]))
        self._console.print(
            f"Replicated {len(tables)} tables and {self._shop.writes:,} writes, most of them while the schema changed. Each schema change "
            "waited for exactly the rows before it. While its gate was closed, only the later rows of its own table waited."
        )
        result = self._outcome(self._connection, self._console, _ID)
        self._console.print(Text(result.text, "bold green" if result.identical else "bold red"))
        return result.identical


def _gate(table: pb.Table) -> Text:
    if table.held:
        return Text("closed by a DDL", "yellow")
    return Text(f"copy {100 * table.copy.share:.0f}%", "cyan") if table.HasField("copy") else Text("open", "green")


def _clock(position: str) -> str:
    return ClusterTime.parse(position.partition("/")[0]).to_datetime().strftime("%H:%M:%S") if position else "-"


def _subject(ddl: pb.Ddl) -> str:
    return f"{ddl.table} to {ddl.renamed_to}" if ddl.renamed_to else ddl.table


def _closed(ddl: pb.Ddl) -> str:
    if not ddl.HasField("done_at"):
        return "waits"
    took: timedelta = ddl.done_at.ToDatetime() - ddl.seen_at.ToDatetime()
    return f"{took.total_seconds():.1f} s"


def run(*, files: bool = False, kafka: bool = False, cluster: bool = False, spark: bool = False) -> bool:
    """`files`, `kafka`: into messages there, from which a target is made at the end. `cluster`: the shop is on two shards. `spark` reads files."""
    console = Console()
    began = time.monotonic()
    with ExitStack() as running:
        between = "a Kafka broker, " if kafka else "Spark, " if spark else ""
        console.print(f"Starting etcd, a source, a target, {between}and three Sluice nodes ...")
        stack = running.enter_context(DevStack())
        in_files = MessagesInFiles(stack.directory / "files")
        messages: Messages | None = in_files if files or spark else None
        if kafka:
            broker = KafkaBroker(stack.directory / "kafka", stack.directory / "log" / "kafka.log")
            messages = MessagesInTopics(running.enter_context(broker))
        nodes = running.enter_context(OwnerKilled(stack, _ID))
        shop: Shop
        if cluster:
            shards = running.enter_context(ShardedCluster(stack.directory / "shards", stack.directory / "log"))
            source, shop = shards.config.uri, ClusterShop(shards)
        else:
            client = running.enter_context(Client(stack.source_uri))
            source, shop = stack.source_uri, ReplicaSetShop(client, images=spark)
        running.callback(shop.close)
        sink, routes = (stack.target_uri, _REPLICA) if messages is None else (messages.sink, "")
        outcome = verified if messages is None else ThroughMessages(stack, shop, messages).read_back
        if spark:
            query = SparkQuery(stack.directory / "spark", shop, stack.source_uri, in_files)
            running.callback(query.stop)
            query.start()
            outcome, routes = query.read_back, "images: available\n"
        demo = Demo(nodes, console, shop, outcome)
        identical = demo.play(_CONFIGURATION.format(source=source, sink=sink) + routes)
    console.print(f"The demonstration took {time.monotonic() - began:.0f} s.")
    return identical
