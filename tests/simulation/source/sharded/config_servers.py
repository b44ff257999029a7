"""`ConfigServers`: the config servers of a simulated cluster, with the documents that say which shard has what."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from changefeed.cluster_time import ClusterTime
from tests.simulation.clockwork.machine import Machine
from tests.simulation.source.oplog import Document, Operation
from tests.simulation.source.sharded.shard import Shard, new_session

CONFIG = "config"

Change = tuple[str, Any, Mapping[str, Any] | None, Mapping[str, Any] | None]
"""Collection and `_id`; the document afterwards, None if it is removed; the changed fields, None if the entry has the whole document."""


class ConfigServers(Shard):
    """`now`: the documents by collection and `_id`."""

    def __init__(self, machine: Machine, *, skew: float) -> None:
        self.now: dict[str, dict[Any, dict[str, Any]]] = {"collections": {}, "chunks": {}}
        self._changes: list[tuple[int, Change]] = []
        """Each with the index of its entry."""
        self._read: tuple[int, dict[str, dict[Any, dict[str, Any]]]] = (0, {})
        super().__init__(machine, CONFIG, skew=skew)

    def put(self, coll: str, document: dict[str, Any]) -> ClusterTime:
        """A new document, or another one under its `_id`."""
        return self._wrote([(coll, document["_id"], document, None)])

    def set(self, coll: str, id: Any, **fields: Any) -> ClusterTime:
        return self._wrote([(coll, id, {**self.now[coll][id], **fields}, fields)])

    def remove(self, coll: str, *ids: Any) -> ClusterTime:
        for id in ids:
            self._wrote([(coll, id, None, None)])
        return self.newest

    def together(self, number: int, *documents: tuple[str, dict[str, Any]]) -> ClusterTime:
        """In one entry: as one transaction, or as one command of a shard."""
        return self._wrote([(coll, document["_id"], document, None) for coll, document in documents], number)

    def in_transaction(
        self, number: int, *, removed: Iterable[tuple[str, Any]], changed: Iterable[tuple[str, Any, dict[str, Any]]]
    ) -> ClusterTime:
        changes: list[Change] = [(coll, id, None, None) for coll, id in removed]
        changes += [(coll, id, {**self.now[coll][id], **fields}, fields) for coll, id, fields in changed]
        return self._wrote(changes, number)

    def documents(self, coll: str, visible: int) -> Iterable[dict[str, Any]]:
        """As a member has them that knows a majority to have so many entries."""
        upto = bisect_left(self._changes, visible, key=lambda change: change[0])
        done, state = self._read
        if upto < done:
            done, state = 0, {}
        for _, (of, id, document, _) in self._changes[done:upto]:
            _apply(state, of, id, document)
        self._read = upto, state
        return list(state.get(coll, {}).values())

    def _wrote(self, changes: list[Change], number: int = 0) -> ClusterTime:
        operations = [self._operation(change) for change in changes]
        if number:
            _, last = self.apply(operations, session=new_session(number), parts=1)
            self.append(last)
        else:
            [operation] = operations
            self.write(operation)
        for change in changes:
            self._changes.append((len(self.oplog) - 1, change))
            _apply(self.now, *change[:3])
        return self.newest

    def _operation(self, change: Change) -> Operation:
        coll, id, document, fields = change
        before = self.now.get(coll, {}).get(id)
        ns, o2 = f"{CONFIG}.{coll}", {"_id": id}
        if document is None:
            return Operation("d", ns, {"_id": id})
        if before is None:
            return Operation("i", ns, document, o2)
        if fields is None:
            return Operation("u", ns, document, o2)
        return Operation("u", ns, {"$v": 2, "diff": {"u": dict(fields)}}, o2)


def _apply(state: dict[str, dict[Any, dict[str, Any]]], coll: str, id: Any, document: Document | None) -> None:
    documents = state.setdefault(coll, {})
    if document is None:
        documents.pop(id, None)
    else:
        documents[id] = dict(document)
