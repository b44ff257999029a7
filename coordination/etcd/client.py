"""`EtcdClient`: the protocol `Etcd` over the wire. `EtcdWatch`: one watch on one gRPC stream.

It uses the generated stubs of the `etcd3` package on its own channels. The high-level client of that package has no deadline on
lease and transaction calls, locks a failed endpoint out for five minutes, and its watcher thread dies with its stream.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from itertools import groupby
from typing import Any

import grpc
from etcd3 import etcdrpc as rpc

from changefeed.errors import CoordinationUnavailable, FencedError, SluiceError
from coordination.etcd.channels import Endpoint, EtcdConnection, status, translate
from coordination.etcd.protocol import (
    Change,
    Committed,
    Compare,
    CreateRevIs,
    Delete,
    EtcdConfig,
    HistoryCompacted,
    KeyValue,
    Lease,
    Op,
    Put,
    Refused,
    Snapshot,
    WatchUpdate,
    prefix_end,
    range_end,
)

_PAGE = 1000


class EtcdClient(AbstractContextManager["EtcdClient"]):
    """Safe to use from many threads. `close` ends its watches too, and may be called twice."""

    def __init__(self, config: EtcdConfig) -> None:
        self._timeout = config.timeout
        self._connection = EtcdConnection(config)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, key: str) -> KeyValue | None:
        reply = self._connection.call(lambda endpoint: endpoint.kv.Range, rpc.RangeRequest(key=key.encode()))
        return key_value(reply.kvs[0]) if reply.kvs else None

    def range(self, prefix: str, below: str = "", *, at_rev: int = 0) -> Snapshot:
        """Read in pages, all at the revision of the first."""
        start, end, revision = prefix.encode(), range_end(prefix, below), at_rev
        items: list[KeyValue] = []
        while True:
            request = rpc.RangeRequest(key=start, range_end=end, limit=_PAGE, revision=revision)
            reply = self._connection.call(lambda endpoint: endpoint.kv.Range, request)
            items.extend(key_value(kv) for kv in reply.kvs)
            revision = revision or reply.header.revision
            if not reply.more:
                return Snapshot(revision=revision, items=tuple(items))
            start = reply.kvs[-1].key + b"\0"

    def keys(self, prefix: str) -> list[str]:
        request = rpc.RangeRequest(key=prefix.encode(), range_end=prefix_end(prefix), keys_only=True)
        reply = self._connection.call(lambda endpoint: endpoint.kv.Range, request)
        return [kv.key.decode() for kv in reply.kvs]

    def txn(self, compares: Sequence[Compare], ops: Sequence[Op]) -> Committed | Refused:
        keys = list(dict.fromkeys(compare.key for compare in compares))
        request = rpc.TxnRequest(
            compare=[_compare(compare) for compare in compares],
            success=[_op(op) for op in ops],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode())) for key in keys],
        )
        reply = self._connection.call(lambda endpoint: endpoint.kv.Txn, request, txn=True)
        if reply.succeeded:
            return Committed(reply.header.revision)
        return Refused(reply.header.revision, dict(zip(keys, _found(reply.responses), strict=True)))

    def watch(self, prefix: str, start_rev: int, below: str = "") -> EtcdWatch:
        return self._connection.streaming(
            lambda endpoint, metadata: EtcdWatch(
                endpoint.watches.Watch,
                (prefix.encode(), range_end(prefix, below)),
                start_rev,
                metadata=metadata,
                endpoint=endpoint.address,
                timeout=self._timeout,
            )
        )

    def grant(self, ttl: timedelta) -> Lease:
        request = rpc.LeaseGrantRequest(TTL=math.ceil(ttl.total_seconds()))
        reply = self._connection.call(lambda endpoint: endpoint.leases.LeaseGrant, request)
        return Lease(id=reply.ID, ttl=timedelta(seconds=reply.TTL))

    def keep_alive(self, lease: int, timeout: timedelta) -> timedelta | None:
        request = rpc.LeaseKeepAliveRequest(ID=lease)
        reply = self._connection.call(_keep_alive_once, request, timeout=timeout)
        return timedelta(seconds=reply.TTL) if reply.TTL > 0 else None

    def revoke(self, lease: int) -> None:
        request = rpc.LeaseRevokeRequest(ID=lease)
        try:
            self._connection.call(lambda endpoint: endpoint.leases.LeaseRevoke, request)
        except FencedError:
            return

    def time_to_live(self, lease: int) -> timedelta | None:
        request = rpc.LeaseTimeToLiveRequest(ID=lease)
        reply = self._connection.call(lambda endpoint: endpoint.leases.LeaseTimeToLive, request)
        return timedelta(seconds=reply.TTL) if reply.TTL >= 0 else None


def _keep_alive_once(endpoint: Endpoint) -> Callable[..., Any]:
    """Keep-alive is a stream. A stream for each keep-alive costs no more, has a deadline, and may use another member."""

    def send(request: Any, *, timeout: float, metadata: tuple[tuple[str, str], ...]) -> Any:
        stream = endpoint.leases.LeaseKeepAlive(iter((request,)), timeout=timeout, metadata=metadata)
        try:
            reply = next(stream, None)
        finally:
            stream.cancel()
        if reply is None:
            raise CoordinationUnavailable(
                f"etcd at {endpoint.address}: closed the stream instead of keeping a lease alive"
            )
        return reply

    return send


def _compare(compare: Compare) -> Any:
    key, equal = compare.key.encode(), rpc.Compare.EQUAL
    if isinstance(compare, CreateRevIs):
        return rpc.Compare(result=equal, target=rpc.Compare.CREATE, key=key, create_revision=compare.rev)
    return rpc.Compare(result=equal, target=rpc.Compare.MOD, key=key, mod_revision=compare.rev)


def _op(op: Op) -> Any:
    if isinstance(op, Put):
        return rpc.RequestOp(request_put=rpc.PutRequest(key=op.key.encode(), value=op.value, lease=op.lease))
    if isinstance(op, Delete):
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=op.key.encode()))
    request = rpc.DeleteRangeRequest(key=op.prefix.encode(), range_end=prefix_end(op.prefix))
    return rpc.RequestOp(request_delete_range=request)


def _found(responses: Iterable[Any]) -> Iterator[KeyValue | None]:
    for response in responses:
        kvs = response.response_range.kvs
        yield key_value(kvs[0]) if kvs else None


_DELETE = 1


class _Created:
    """The first message of a stream."""


class EtcdWatch:
    """One watch on one gRPC stream. It ends with its stream; the caller then opens another (see `mirror`).

    It never enables fragments: without them, etcd guarantees that each response consists of whole revisions. It uses the progress that
    the server sends by itself, in order with the events. Progress on request is not used: servers before 3.5.8 may send it ahead of
    events that it claims to cover.

    It requests one revision more than it shows: before 3.5.13 a watch that starts exactly at a compacted revision misses the deletions
    in it. For a watch that starts one revision earlier, etcd reports the compaction.

    Its own thread reads the stream, because a gRPC stream cannot be read with a timeout.
    """

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
            key=keys[0], range_end=keys[1], start_revision=max(start_rev - 1, 1), progress_notify=True
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
