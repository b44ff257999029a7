"""`Connections`: the clusters that changefeeds read from, each connected once and shared, and those they write to."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from changefeed.configuration import Configuration
from changefeed.event import DdlEvent
from changefeed.position import Window
from changefeed.table import TableName
from changefeed.uri import ConnectionUri
from owner.ddl_feed import DdlFeed
from sink.blackhole.ddl_applier import BlackholeDdlApplier
from sink.ddl import DdlApplier
from sink.mongodb.commander import Permit
from sink.mongodb.connection import connect as connect_to_target
from sink.mongodb.ddl_applier import MongoDdlApplier
from source.catalog import CatalogReading
from source.connection import Client, connect
from source.opening import open_ddl_watch
from source.oplog_window import OplogWindow, read_oplog_window
from source.stable_catalog import read_stable_catalog


class Source:
    """One source cluster. Its methods wait for the network: they are for worker threads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open_watch = partial(open_ddl_watch, client)
        self.feed = DdlFeed(self._open_watch)

    def read_tables(self, wanted: Callable[[TableName], bool]) -> CatalogReading:
        return read_stable_catalog(self._client, wanted, self._open_watch)

    def ddls(self, window: Window) -> list[DdlEvent]:
        found: list[DdlEvent] = []
        with self._open_watch(window.start) as watch:
            resolved = window.start
            while resolved < window.end:
                batch = watch.poll()
                found += batch.events
                resolved = batch.resolved
        return [event for event in found if event.position in window]

    def oplog_window(self) -> OplogWindow | None:
        return read_oplog_window(self._client)

    def close(self) -> None:
        self.feed.close()
        self._client.close()


@dataclass(slots=True)
class _Shared:
    source: Source
    users: int


class Connections:
    """Sinks ask the permit before each command."""

    def __init__(self, permit: Permit) -> None:
        self._permit = permit
        self._lock = threading.Lock()
        self._shared: dict[str, _Shared] = {}

    def acquire(self, uri: ConnectionUri) -> Source:
        """Connects lazily: a source that does not answer shows in its first use. Each user releases it once."""
        with self._lock:
            shared = self._shared.get(uri.reference)
            if shared is None:
                shared = self._shared[uri.reference] = _Shared(Source(connect(expanded(uri))), 0)
            shared.users += 1
            return shared.source

    def release(self, uri: ConnectionUri) -> None:
        with self._lock:
            shared = self._shared[uri.reference]
            shared.users -= 1
            if shared.users:
                return
            del self._shared[uri.reference]
        shared.source.close()

    def open_sink(self, configuration: Configuration) -> DdlApplier:
        if configuration.sink.scheme == "blackhole":
            return BlackholeDdlApplier()
        client = connect_to_target(expanded(configuration.sink))
        return MongoDdlApplier(client, permit=self._permit, ttl=configuration.ddl.ttl)


def expanded(uri: ConnectionUri) -> str:
    return uri.expand(os.environ, lambda path: Path(path).read_text(encoding="utf-8"))
