"""`DesiredStore`: writes the users' changes to etcd, by compare-and-swap on the state that was read, each with its line of the audit.

No change is lost: of two concurrent changes, one is refused. The verb of a refused change is decided again on the state after the other
change; so a verb that cannot conflict, such as pause, succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from admin.access import Access, Caller
from admin.cluster_reader import no_such_changefeed
from admin.desired.audit import AuditLine, differing_parts
from changefeed.errors import ConflictError, NotFoundError, RecordUnreadable, WrongState
from changefeed.position import Position
from changefeed.records.history import HistoryEntry
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
from changefeed.records.sync_point import SyncRequest
from changefeed.table import TableId
from coordination.election import ElectedOwner
from coordination.etcd.protocol import Compare, CreateRevIs, Delete, Etcd, KeyValue, ModRevIs, Op, Put
from coordination.fenced import compare_and_swap
from coordination.history import history_of
from coordination.layout import Layout, RemovedChangefeed, ResignRequest, decode, readable

_ATTEMPTS = 5

Edit = Callable[[ChangefeedInfo, ChangefeedStatus | None], ChangefeedInfo]

T = TypeVar("T")


NODE_ITSELF = Caller(name="the node itself", access=Access.OPERATOR)


class DesiredStore:
    """Each write returns its revision, or the revision of the present value if there was nothing to change."""

    def __init__(self, etcd: Etcd, layout: Layout, caller: Caller = NODE_ITSELF) -> None:
        self._etcd = etcd
        self._layout = layout
        self._caller = caller

    def by(self, caller: Caller) -> DesiredStore:
        """The same store, for the changes of a user."""
        return DesiredStore(self._etcd, self._layout, caller)

    def history(self, id: ChangefeedId) -> list[HistoryEntry]:
        return history_of(self._etcd, self._layout, id)

    def record(self, id: ChangefeedId, action: str, subject: str, after: str) -> None:
        """Of a change that is about to be made elsewhere than in etcd."""
        self._request(id, [], self._line(action, subject, after=after))

    def _line(self, action: str, subject: str = "", *, before: str = "", after: str = "") -> AuditLine:
        return AuditLine(by=self._caller, action=action, subject=subject, before=before, after=after)

    def removed_at(self, id: ChangefeedId) -> datetime | None:
        """When a user removed the changefeed that had this id last. None if there was none, or if another was created since."""
        found = self._etcd.get(self._layout.removed(id))
        return decode(RemovedChangefeed, found).at if found else None

    def check_free(self, id: ChangefeedId) -> None:
        """Before anything else of a create is looked at: what is wrong with a second changefeed of a name is its name."""
        if self._etcd.get(self._layout.info(id)) is not None:
            raise ConflictError(
                f"changefeed {id!r} exists already; choose another id, or remove it first. To change it: `sluice changefeed update {id}`"
            )

    def create(self, info: ChangefeedInfo, *, unless_removed: bool = False) -> int:
        id = ChangefeedId(info.configuration.id)
        key, removed = self._layout.info(id), self._layout.removed(id)
        if unless_removed and (at := self.removed_at(id)) is not None:
            raise WrongState(
                f"changefeed {id!r} was removed at {at:%Y-%m-%d %H:%M:%S} UTC, so it is not created again by itself; `sluice changefeed create` "
                "does it"
            )
        self.check_free(id)
        line = self._line("create", after=f"{info.configuration.source} to {info.configuration.sink}")
        return self._written(id, CreateRevIs(key, 0), (_put(key, info), Delete(removed)), line)

    def change(self, id: ChangefeedId, edit: Edit, action: str) -> int:
        """`action`: the user's verb, for the audit. Empty: a note of how far a verb has come, which is no change of its own."""
        return _repeated(lambda: self._change(id, edit, action))

    def remove_unread(self, id: ChangefeedId) -> int:
        """Of a changefeed with a record that cannot be read: the owner deletes its keys once nothing of it runs."""
        found, removed = self._info(id), self._layout.removed(id)
        wish = _put(removed, RemovedChangefeed(at=datetime.now(UTC)))
        line = self._line("remove", before="unreadable", after=DesiredState.REMOVED)
        return self._written(id, ModRevIs(found.key, found.mod_rev), (wish,), line)

    def read(self, id: ChangefeedId) -> tuple[ChangefeedInfo, ChangefeedStatus | None]:
        return decode(ChangefeedInfo, self._info(id)), self._status(id)

    def _info(self, id: ChangefeedId) -> KeyValue:
        found = self._etcd.get(self._layout.info(id))
        if found is None:
            raise no_such_changefeed(id)
        return found

    def _status(self, id: ChangefeedId) -> ChangefeedStatus | None:
        found = self._etcd.get(self._layout.status(id))
        return decode(ChangefeedStatus, found) if found else None

    def _written(self, id: ChangefeedId, unless: Compare, ops: Iterable[Op], line: AuditLine) -> int:
        """In one transaction with the line of the audit. `unless`: what must not have changed."""
        rev = compare_and_swap(self._etcd, (unless,), (*ops, *line.ops(self._etcd, self._layout, id)))
        line.log(id)
        return rev

    def move(self, id: ChangefeedId, table: TableId, node: NodeId, *, name: str = "") -> int:
        """The caller has just seen `node`; if it has gone since, the owner deletes the request. `name`: the table's, for the audit."""
        put = _put(self._layout.move(id, table), MoveRequest(node=node))
        return self._request(id, [put], self._line("move table", name or table, after=node))

    def ask(self, id: ChangefeedId, table: TableId, verb: TableVerb, *, name: str = "") -> int:
        """The owner deletes the request when it has obeyed."""
        put = _put(self._layout.request(id, table), TableRequest(verb=verb))
        return self._request(id, [put], self._line(f"{verb} table", name or table))

    def skip(self, id: ChangefeedId, position: Position, *, name: str = "") -> int:
        put = _put(self._layout.skip(id, position), SkipRequest(position=position))
        return self._request(
            id, [put], self._line("skip ddl", name or str(position), before="refused", after="skipped")
        )

    def ask_for_sync_point(self, id: ChangefeedId) -> int:
        put = _put(self._layout.sync_request(id), SyncRequest(asked_at=datetime.now(UTC)))
        return self._request(id, [put], self._line("make sync point"))

    def repair(self, id: ChangefeedId, table: TableId, request: RepairRequest) -> int | None:
        """None if other rows of the table are being repaired: one request at a time, but one that cannot be read is none."""
        found, key = self._info(id), self._layout.repair(id, table)
        known = self._etcd.get(key)
        damaged = known is not None and _readable(RepairRequest, known) is None
        free = ModRevIs(key, known.mod_rev) if known is not None and damaged else CreateRevIs(key, 0)
        alone = CreateRevIs(found.key, found.create_rev), free
        try:
            return compare_and_swap(self._etcd, alone, (_put(key, request),))
        except ConflictError:
            return None

    def withdraw(self, id: ChangefeedId, table: TableId, request: RepairRequest) -> None:
        """Unless it is done already. A node that is carrying it out does no harm: it writes what the source has."""
        found = self._etcd.get(self._layout.repair(id, table))
        if found is not None and decode(RepairRequest, found).id == request.id:
            self._etcd.txn((ModRevIs(found.key, found.mod_rev),), (Delete(found.key),))

    def _request(self, id: ChangefeedId, puts: Sequence[Put], line: AuditLine) -> int:
        """Of the changefeed that exists now, not of a later one of the same name."""
        found = self._info(id)
        return self._written(id, CreateRevIs(found.key, found.create_rev), puts, line)

    def drain(self, node: NodeId, *, force: bool = True) -> int:
        """Without `force` it is refused if no other node takes tables, also if two drains come at the same time."""
        return _repeated(lambda: self._set_draining(node, draining=True, force=force))

    def undrain(self, node: NodeId) -> int:
        return _repeated(lambda: self._set_draining(node, draining=False, force=True))

    def _set_draining(self, node: NodeId, *, draining: bool, force: bool) -> int:
        """Keeps the node's key and lease, so its epoch does not change. In conflict if one of the nodes has written its record meanwhile."""
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
        before, after = ("takes tables", "drained") if draining else ("drained", "takes tables")
        self._line("drain node" if draining else "undrain node", node, before=before, after=after).log()
        return rev

    def resign(self, owner: ElectedOwner) -> int:
        """Writes a request for the owner of that epoch only; it exists only while that owner leads."""
        line = self._etcd.range(self._layout.owners).items
        leader = next((kv for kv in line if kv.create_rev == owner.epoch), None)
        if leader is None:
            raise ConflictError(f"{owner.node} is no longer the owner")
        put = _put(self._layout.resign, ResignRequest(epoch=owner.epoch), leader.lease)
        rev = compare_and_swap(self._etcd, (CreateRevIs(leader.key, owner.epoch),), (put,))
        self._line("resign owner", owner.node).log()
        return rev

    def _change(self, id: ChangefeedId, edit: Edit, action: str) -> int:
        found = self._info(id)
        info, status = decode(ChangefeedInfo, found), self._status(id)
        wanted = edit(info, status)
        if wanted == info:
            return found.mod_rev
        ops: list[Op] = [_put(found.key, wanted)]
        unchanged = ModRevIs(found.key, found.mod_rev)
        if wanted.desired is DesiredState.REMOVED:
            ops.append(_put(self._layout.removed(id), RemovedChangefeed(at=datetime.now(UTC))))
        if not action:
            return compare_and_swap(self._etcd, (unchanged,), ops)
        before, after = differing_parts(info, wanted)
        return self._written(id, unchanged, ops, self._line(action, before=before, after=after))


def _repeated(write: Callable[[], int]) -> int:
    """After a conflict it is decided again, on the state after the other write."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(ConflictError):
            return write()
    return write()


def _readable(kind: type[T], kv: KeyValue) -> T | None:
    try:
        return decode(kind, kv)
    except RecordUnreadable:
        return None


def _put(key: str, record: object, lease: int = 0) -> Put:
    return Put(key, readable(key, record), lease)
