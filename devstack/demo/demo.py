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
from cli.channel import Connection, ServerAddress
from devstack.demo.message_places import MessagesInFiles, MessagesInTopics
from devstack.demo.outcome import DemoFailed, Messages, Outcome, ThroughMessages, verified
from devstack.demo.shop import Shop
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client
from devstack.node import Node
from devstack.stack import DevStack

_ID = "shop-to-dr"
_CONFIGURATION = """
id: shop-to-dr
source: {source}
sink: {sink}
start: initial
filter: {{tables: ["shop.*"]}}
"""
_ROUTES = """
routes: [{from: "shop.*", to: "shop_dr.*"}]
"""
_SCENE_SECONDS = 2.5
_PATIENCE_SECONDS = 90.0
_REFRESH_SECONDS = 0.15


class Demo:
    """Draws tables on a terminal; otherwise it prints a line for each scene."""

    def __init__(self, connection: Connection, console: Console, shop: Shop, outcome: Outcome) -> None:
        self._connection = connection
        self._console = console
        self._shop = shop
        self._outcome = outcome
        self._start = ""

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
                self._watch(live, _SCENE_SECONDS)
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
        request = pb.ListTablesRequest(changefeed=_ID)
        return sorted(
            self._connection.stream(self._connection.tables.ListTables, request), key=lambda table: table.name
        )

    def _ddls(self) -> list[pb.Ddl]:
        return list(self._connection.stream(self._connection.ddls.ListDdl, pb.ListDdlRequest(changefeed=_ID)))

    def _copied(self) -> bool:
        """A table's position leaves the changefeed's start when its copy is done; the checkpoint leaves it when all copies are done."""
        checkpoint = self._feed().checkpoint
        self._start = self._start or checkpoint
        return checkpoint != self._start

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


def run(console: Console, *, files: bool = False, kafka: bool = False) -> bool:
    """`files`, `kafka`: into messages there, from which a target is made at the end."""
    began = time.monotonic()
    with ExitStack() as running:
        between = "a Kafka broker, " if kafka else ""
        console.print(f"Starting etcd, a source, a target, {between}and one Sluice node ...")
        stack = running.enter_context(DevStack())
        node = Node("demo", stack.etcd_endpoint, stack.directory / "node", stack.directory / "log" / "node.log")
        messages: Messages | None = MessagesInFiles(stack.directory / "files") if files else None
        if kafka:
            broker = KafkaBroker(stack.directory / "kafka", stack.directory / "log" / "kafka.log")
            messages = MessagesInTopics(running.enter_context(broker))
        running.enter_context(node)
        client: Client = running.enter_context(Client(stack.source_uri))
        connection = running.enter_context(Connection(ServerAddress(server=node.address)))
        shop = Shop(client)
        running.callback(shop.close)
        sink, routes = (stack.target_uri, _ROUTES) if messages is None else (messages.sink, "")
        outcome = verified if messages is None else ThroughMessages(stack, shop, messages).read_back
        demo = Demo(connection, console, shop, outcome)
        identical = demo.play(_CONFIGURATION.format(source=stack.source_uri, sink=sink) + routes)
    console.print(f"The demonstration took {time.monotonic() - began:.0f} s.")
    return identical
