"""`DesiredStore`: writes the users' changes to etcd, by compare-and-swap on the state that was read.

No change is lost: of two concurrent changes, one is refused. The verb of a refused change is decided again on the state after the other
change; so a verb that cannot conflict, such as pause, succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from admin.cluster_reader import no_such_changefeed
from changefeed.errors import ConflictError, NotFoundError, RecordUnreadable, WrongState
from changefeed.position import Position
from changefeed.records.node import NodeId, NodeRecord
from changefeed.records.requests import (
    ChangefeedId,
    ChangefeedInfo,
    DesiredState,
    MoveRequest,
    RepairRequest,
    SkipRequest,
    TableRequest,
    TableVerb,
)
from changefeed.records.status import ChangefeedStatus
from changefeed.table import TableId
from coordination.election import ElectedOwner
from coordination.etcd.protocol import CreateRevIs, Delete, Etcd, KeyValue, ModRevIs, Put
from coordination.fenced import compare_and_swap
from coordination.layout import Layout, RemovedChangefeed, ResignRequest, decode, readable

_ATTEMPTS = 5

Edit = Callable[[ChangefeedInfo, ChangefeedStatus | None], ChangefeedInfo]

T = TypeVar("T")

_log = structlog.get_logger()


class DesiredStore:
    """Each write returns its revision, or the revision of the present value if there was nothing to change."""

    def __init__(self, etcd: Etcd, layout: Layout) -> None:
        self._etcd = etcd
        self._layout = layout

    def removed_at(self, id: ChangefeedId) -> datetime | None:
        """When a user removed the changefeed that had this id last. None if there was none, or if another was created since."""
        found = self._etcd.get(self._layout.removed(id))
        return decode(RemovedChangefeed, found).at if found else None

    def create(self, info: ChangefeedInfo, *, unless_removed: bool = False) -> int:
        id = ChangefeedId(info.configuration.id)
        key, removed = self._layout.info(id), self._layout.removed(id)
        if unless_removed and (at := self.removed_at(id)) is not None:
            raise WrongState(
                f"changefeed {id!r} was removed at {at:%Y-%m-%d %H:%M:%S} UTC, so it is not created again by itself; `sluice changefeed create` "
                "does it"
            )
        found = self._etcd.get(key)
        if found is not None:
            raise ConflictError(f"changefeed {id!r} exists already; choose another id, or remove it first")
        rev = compare_and_swap(self._etcd, (CreateRevIs(key, 0),), (_put(key, info), Delete(removed)))
        _log.info("changefeed_created", changefeed=id)
        return rev

    def change(self, id: ChangefeedId, edit: Edit) -> int:
        for attempts_left in range(_ATTEMPTS, 0, -1):
            try:
                return self._change(id, edit)
            except ConflictError:
                if attempts_left == 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def remove_unread(self, id: ChangefeedId) -> int:
        """Of a changefeed with a record that cannot be read: the owner deletes its keys once nothing of it runs."""
        info, removed = self._layout.info(id), self._layout.removed(id)
        found = self._etcd.get(info)
        if found is None:
            raise no_such_changefeed(id)
        wish = _put(removed, RemovedChangefeed(at=datetime.now(UTC)))
        rev = compare_and_swap(self._etcd, (ModRevIs(info, found.mod_rev),), (wish,))
        _log.warning("unreadable_changefeed_to_be_removed", changefeed=id)
        return rev

    def read(self, id: ChangefeedId) -> tuple[ChangefeedInfo, ChangefeedStatus | None]:
        found = self._etcd.get(self._layout.info(id))
        if found is None:
            raise no_such_changefeed(id)
        return decode(ChangefeedInfo, found), self._status(id)

    def _status(self, id: ChangefeedId) -> ChangefeedStatus | None:
        found = self._etcd.get(self._layout.status(id))
        return decode(ChangefeedStatus, found) if found else None

    def move(self, id: ChangefeedId, table: TableId, node: NodeId) -> int:
        """The caller has just seen `node`; if it has gone since, the owner deletes the request."""
        return self._request(id, _put(self._layout.move(id, table), MoveRequest(node=node)))

    def ask(self, id: ChangefeedId, table: TableId, verb: TableVerb) -> int:
        """The owner deletes the request when it has obeyed."""
        return self._request(id, _put(self._layout.request(id, table), TableRequest(verb=verb)))

    def skip(self, id: ChangefeedId, position: Position) -> int:
        return self._request(id, _put(self._layout.skip(id, position), SkipRequest(position=position)))

    def repair(self, id: ChangefeedId, table: TableId, request: RepairRequest) -> int | None:
        """None if other rows of the table are being repaired: one request at a time, but one that cannot be read is none."""
        info, key = self._layout.info(id), self._layout.repair(id, table)
        found = self._etcd.get(info)
        if found is None:
            raise no_such_changefeed(id)
        known = self._etcd.get(key)
        damaged = known is not None and _readable(RepairRequest, known) is None
        free = ModRevIs(key, known.mod_rev) if known is not None and damaged else CreateRevIs(key, 0)
        alone = CreateRevIs(info, found.create_rev), free
        try:
            return compare_and_swap(self._etcd, alone, (_put(key, request),))
        except ConflictError:
            return None

    def withdraw(self, id: ChangefeedId, table: TableId, request: RepairRequest) -> None:
        """Unless it is done already. A node that is carrying it out does no harm: it writes what the source has."""
        found = self._etcd.get(self._layout.repair(id, table))
        if found is not None and decode(RepairRequest, found).id == request.id:
            self._etcd.txn((ModRevIs(found.key, found.mod_rev),), (Delete(found.key),))

    def _request(self, id: ChangefeedId, put: Put) -> int:
        """Of the changefeed that exists now, not of a later one of the same name."""
        info = self._layout.info(id)
        found = self._etcd.get(info)
        if found is None:
            raise no_such_changefeed(id)
        return compare_and_swap(self._etcd, (CreateRevIs(info, found.create_rev),), (put,))

    def drain(self, node: NodeId, *, force: bool = True) -> int:
        """Without `force` it is refused if no other node takes tables, also if two drains come at the same time."""
        return self._set_draining(node, draining=True, force=force)

    def undrain(self, node: NodeId) -> int:
        return self._set_draining(node, draining=False, force=True)

    def _set_draining(self, node: NodeId, *, draining: bool, force: bool) -> int:
        for attempts_left in range(_ATTEMPTS, 0, -1):
            try:
                return self._try_draining(node, draining=draining, force=force)
            except ConflictError:  # the node, or the one that would take its tables, has written its record meanwhile
                if attempts_left == 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _try_draining(self, node: NodeId, *, draining: bool, force: bool) -> int:
        """Keeps the node's key and lease, so its epoch does not change."""
        key = self._layout.node(node)
        nodes = {kv.key: kv for kv in self._etcd.range(self._layout.nodes).items}
        found = nodes.get(key)
        if found is None:
            raise NotFoundError(f"node {node!r} no longer exists")
        record = decode(NodeRecord, found)
        if record.draining is draining:
            return found.mod_rev
        others = ((kv, _readable(NodeRecord, kv)) for kv in nodes.values() if kv.key != key)
        taker = next((kv for kv, other in others if other is not None and other.takes_tables), None)
        if taker is None and not force:
            raise WrongState(
                f"no other node takes tables, so those of {node!r} would stay where they are; start another node, or undrain or mend one "
                "(`sluice node list`), or drain it nevertheless with --force"
            )
        present = [
            ModRevIs(kv.key, kv.mod_rev) for kv in (found, *([taker] if taker is not None and not force else []))
        ]
        put = _put(key, replace(record, draining=draining), found.lease)
        rev = compare_and_swap(self._etcd, present, (put,))
        _log.info("node_drained" if draining else "node_undrained", which=node)
        return rev

    def resign(self, owner: ElectedOwner) -> int:
        """Writes a request for the owner of that epoch only; it exists only while that owner leads."""
        line = self._etcd.range(self._layout.owners).items
        leader = next((kv for kv in line if kv.create_rev == owner.epoch), None)
        if leader is None:
            raise ConflictError(f"{owner.node} is no longer the owner")
        put = _put(self._layout.resign, ResignRequest(epoch=owner.epoch), leader.lease)
        rev = compare_and_swap(self._etcd, (CreateRevIs(leader.key, owner.epoch),), (put,))
        _log.info("owner_asked_to_resign", owner=owner.node)
        return rev

    def _change(self, id: ChangefeedId, edit: Edit) -> int:
        key = self._layout.info(id)
        found = self._etcd.get(key)
        if found is None:
            raise no_such_changefeed(id)
        info, status = decode(ChangefeedInfo, found), self._status(id)
        wanted = edit(info, status)
        if wanted == info:
            return found.mod_rev
        ops = [_put(key, wanted)]
        if wanted.desired is DesiredState.REMOVED:
            ops.append(_put(self._layout.removed(id), RemovedChangefeed(at=datetime.now(UTC))))
        rev = compare_and_swap(self._etcd, (ModRevIs(key, found.mod_rev),), ops)
        _log.info("changefeed_changed", changefeed=id, desired=wanted.desired, version=wanted.version)
        return rev


def _readable(kind: type[T], kv: KeyValue) -> T | None:
    try:
        return decode(kind, kv)
    except RecordUnreadable:
        return None


def _put(key: str, record: object, lease: int = 0) -> Put:
    return Put(key, readable(key, record), lease)
