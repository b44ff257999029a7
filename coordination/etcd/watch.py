"""`EtcdWatch`: one watch on one gRPC stream. It ends with its stream; the caller then opens another (see `mirror`).

It never enables fragments: without them, etcd guarantees that each response consists of whole revisions. It uses the progress that
the server sends by itself, in order with the events. Progress on request is not used: servers before 3.5.8 may send it ahead of
events that it claims to cover.

It requests one revision more than it shows: before 3.5.13 a watch that starts exactly at a compacted revision misses the deletions
in it. For a watch that starts one revision earlier, etcd reports the compaction.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import groupby
from typing import Any

import grpc
from etcd3 import etcdrpc as rpc

from changefeed.errors import CoordinationUnavailable, SluiceError
from coordination.etcd.connection import status
from coordination.etcd.errors import translate
from coordination.etcd.protocol import Change, HistoryCompacted, KeyValue, WatchUpdate

_DELETE = 1


class _Created:
    """The first message of a stream."""


class EtcdWatch:
    """Its own thread reads the stream, because a gRPC stream cannot be read with a timeout."""

    def __init__(
        self,
        stream: Callable[..., Any],
        keys: tuple[bytes, bytes],
        start_rev: int,
        *,
        metadata: Any,
        endpoint: str,
        timeout: timedelta,
    ) -> None:
        create = rpc.WatchCreateRequest(
            key=keys[0],
            range_end=keys[1],
            start_revision=max(start_rev - 1, 1),
            progress_notify=True,
        )
        self._start_rev = start_rev
        self._endpoint = endpoint
        self._finished = threading.Event()
        self._call = stream(self._held_open(rpc.WatchRequest(create_request=create)), metadata=metadata)
        self._items: queue.SimpleQueue[WatchUpdate | SluiceError | _Created] = queue.SimpleQueue()
        self._over: SluiceError | None = None
        threading.Thread(target=self._read, name=f"etcd-watch {endpoint}", daemon=True).start()
        try:
            created = self._take(timeout)
        except SluiceError:
            self.close()
            raise
        if created is None:
            self.close()
            raise CoordinationUnavailable(f"etcd at {endpoint}: no answer to a watch request within {timeout}")

    def next(self, timeout: timedelta) -> WatchUpdate | None:
        item = self._take(timeout)
        return item if isinstance(item, WatchUpdate) else None

    def close(self) -> None:
        self._finished.set()
        self._call.cancel()

    def _held_open(self, request: Any) -> Iterator[Any]:
        """The request side must not end: some proxies end the whole stream with it."""
        yield request
        self._finished.wait()

    def _take(self, timeout: timedelta) -> WatchUpdate | _Created | None:
        if self._over is not None:
            raise self._over
        try:
            item = self._items.get(timeout=max(timeout.total_seconds(), 0.0))
        except queue.Empty:
            return None
        if isinstance(item, SluiceError):
            self._over = item
            raise item
        return item

    def _read(self) -> None:
        try:
            for response in self._call:
                for item in self._items_of(response):
                    self._items.put(item)
            self._items.put(CoordinationUnavailable(f"etcd at {self._endpoint}: closed the watch"))
        except grpc.RpcError as error:
            code, details = status(error)
            self._items.put(translate(code, details, endpoint=self._endpoint))
        finally:
            self._finished.set()

    def _items_of(self, response: Any) -> Iterator[WatchUpdate | SluiceError | _Created]:
        if response.canceled:
            yield self._cancelled(response)
        elif response.created:
            yield _Created()
        elif response.events:
            yield from (update for update in _updates(response.events) if update.revision >= self._start_rev)
        else:
            yield WatchUpdate(revision=response.header.revision)

    def _cancelled(self, response: Any) -> SluiceError:
        if response.compact_revision:
            floor = response.compact_revision
            return HistoryCompacted(f"etcd at {self._endpoint}: the watch asked for revisions compacted up to {floor}")
        reason = response.cancel_reason
        code = grpc.StatusCode.PERMISSION_DENIED if "permission denied" in reason else grpc.StatusCode.UNAVAILABLE
        return translate(code, reason, endpoint=self._endpoint)


def key_value(kv: Any) -> KeyValue:
    return KeyValue(
        key=kv.key.decode(), value=kv.value, create_rev=kv.create_revision, mod_rev=kv.mod_revision, lease=kv.lease
    )


def _updates(events: Any) -> Iterator[WatchUpdate]:
    for revision, changes in groupby(events, key=lambda event: event.kv.mod_revision):
        yield WatchUpdate(revision=revision, changes=tuple(_change(event) for event in changes))


def _change(event: Any) -> Change:
    return Change(key=event.kv.key.decode(), now=None if event.type == _DELETE else key_value(event.kv))
