"""`Outcome`: compares the shop with what came of it: `verified`, or `ThroughMessages`, which makes a target from messages first."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from rich.console import Console

from admin.stubs.sluice.admin.v1 import verify_pb2
from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from cli.channel import Connection
from devstack.demo.shop import Shop
from devstack.mongodb.server import Client
from devstack.stack import DevStack
from sluice_client.feed_reader import StoredMessage

_PATIENCE_SECONDS = 60.0
_SHOWN = 150


class DemoFailed(Exception):
    """A step of the demonstration did not happen."""


class ShopResult(NamedTuple):
    identical: bool
    text: str


Outcome: TypeAlias = Callable[[Connection, Console, str], ShopResult]


def verified(connection: Connection, console: Console, changefeed: str, *, at: str = "") -> ShopResult:
    """`at`: a sync point. Otherwise both sides as they are."""
    request = verify_pb2.VerifyChangefeedRequest(changefeed=changefeed, at=at)
    for event in connection.stream(connection.verifications.VerifyChangefeed, request):
        if event.WhichOneof("event") == "table" and event.table.outcome != verify_pb2.VERIFY_OUTCOME_EQUAL:
            console.print(event.table)
        if event.WhichOneof("event") == "summary":
            found: verify_pb2.VerifySummary = event.summary
            if not found.succeeded:
                return ShopResult(identical=False, text="Source and target differ.")
            return ShopResult(
                identical=True,
                text=f"Source and target are identical: {found.tables} tables, {found.documents:,} documents.",
            )
    raise DemoFailed("the comparison ended without a result")


class Messages(Protocol):
    """Between the source and what is made of it: a sink of messages, in which they stay."""

    sink: str

    def mark(self) -> Position | None:
        """The newest watermark."""
        ...

    def read(self) -> list[StoredMessage]:
        """All of them, in order."""
        ...

    def command(self) -> list[str]:
        """How `sluice` makes a MongoDB of them, without `--to`."""
        ...


def wait_for_watermark(messages: Messages, end: ClusterTime) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (mark := messages.mark()) is None or mark < Position(end):
        if time.monotonic() > deadline:
            raise DemoFailed(f"no watermark reached {end} within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.1)


class ThroughMessages:
    """Makes the target from messages."""

    def __init__(self, stack: DevStack, shop: Shop, messages: Messages) -> None:
        self._stack = stack
        self._shop = shop
        self._messages = messages

    def read_back(self, connection: Connection, console: Console, changefeed: str) -> ShopResult:  # noqa: ARG002 - no node is asked
        wait_for_watermark(self._messages, self._shop.time())
        self._show(console)
        command = [*self._messages.command(), "--to", self._stack.target_uri]
        said = subprocess.run(
            [sys.executable, "-c", "from cli.main import main; main()", *command],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        console.print(f"`sluice {' '.join(command)}` says: {said}", soft_wrap=True)
        with Client(self._stack.target_uri) as client:
            source, target = self._shop.beside(client)
        if source != target:
            names = sorted(name for name in source.keys() | target.keys() if source.get(name) != target.get(name))
            return ShopResult(
                identical=False, text=f"The source and what was made of the messages differ: {', '.join(names)}."
            )
        return ShopResult(
            identical=True,
            text=f"The source and the MongoDB that was made of the messages are identical: {len(source)} tables.",
        )

    def _show(self, console: Console) -> None:
        messages = self._messages.read()
        counted = Counter(message.fields["op"] for message in messages)
        console.print(
            f"\n{self._messages} hold {len(messages):,} messages: {dict(counted)}. The schema changes among them:"
        )
        for message in messages:
            if message.fields["op"] == "ddl":
                console.print(f"  {message.raw.decode()[:_SHOWN]} ..", soft_wrap=True, highlight=False)
