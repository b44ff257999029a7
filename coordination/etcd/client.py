"""`EtcdClient`: the protocol `Etcd` over the wire.

It uses the generated stubs of the `etcd3` package on its own channels. The high-level client of that package has no deadline on
lease and transaction calls, locks a failed endpoint out for five minutes, and its watcher thread dies with its stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from etcd3 import etcdrpc as rpc

from changefeed.errors import CoordinationUnavailable, FencedError
from coordination.etcd.config import EtcdConfig
from coordination.etcd.connection import Endpoint, EtcdConnection
from coordination.etcd.protocol import (
    Committed,
    Compare,
    CreateRevIs,
    Delete,
    KeyValue,
    Lease,
    Op,
    Put,
    Refused,
    Snapshot,
    prefix_end,
    range_end,
)
from coordination.etcd.watch import EtcdWatch, key_value

_PAGE = 1000


class EtcdClient:
    """Safe to use from many threads. `close` ends its watches too, and may be called twice."""

    def __init__(self, config: EtcdConfig) -> None:
        self._timeout = config.timeout
        self._connection = EtcdConnection(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
