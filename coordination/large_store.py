"""`LargeReader`, `LargeWriter`: the large values of changefeeds in etcd. No node mirrors them: who reads a record reads what it refers to.

    write       the pieces, fenced; then the record that refers to them
    collect     at a view that has all that its owner has written: what no record of it refers to

A crash in between leaves values that nothing refers to, which the next owner collects. A reader whose view is older than a collection reads what
there was when the record was written; if that is compacted, its next view shows another record.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from weakref import WeakValueDictionary

from changefeed.documents.document import Document
from changefeed.errors import RecordUnreadable
from coordination import failpoint
from coordination.etcd.protocol import DeletePrefix, Etcd, KeyValue, Put
from coordination.fenced import FencedStore
from coordination.large_values import MOST_BYTES, bytes_of, check_room, name_of, pieces_of, whole


class LargeReader:
    """Remembers what it has read as long as somebody has it."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[str, Document] = WeakValueDictionary()

    def read(self, etcd: Etcd, group: str, name: str, refers: KeyValue) -> Document:
        """`group`: the large values of the changefeed. `refers`: the record as it was seen."""
        found = self._known.get(name)
        if found is None:
            raw = _read(etcd, f"{group}{name}/")
            if name_of(raw) != name:
                raw = self._read_then(etcd, f"{group}{name}/", refers)
            if name_of(raw) != name:
                raise _damaged(name, refers)
            found = self._known[name] = Document(raw)
        return found

    @staticmethod
    def _read_then(etcd: Etcd, pieces: str, refers: KeyValue) -> bytes:
        """What a record refers to was there when it was written, and is as long as the record is. Long ago is compacted."""
        now = etcd.get(refers.key)
        if now is not None and now.mod_rev == refers.mod_rev:
            return b""
        return _read(etcd, pieces, refers.mod_rev)


def _read(etcd: Etcd, pieces: str, at_rev: int = 0) -> bytes:
    return b"".join(piece.value for piece in etcd.range(pieces, at_rev=at_rev).items)


def _damaged(name: str, refers: KeyValue) -> RecordUnreadable:
    return RecordUnreadable(
        f"{refers.key}: expected the large value {name} that it refers to, found none or a damaged one; remove the changefeed and create it again"
    )


class LargeWriter:
    """Of one changefeed, for one owner's term. For the owner's thread only."""

    def __init__(self, store: FencedStore, group: str) -> None:
        self._store = store
        self._group = group
        self._held: frozenset[str] | None = None
        """None: to be looked up."""

    def write(self, values: Mapping[str, bytes], *, about: str, bounded: bool = True) -> None:
        """Before the record. `about`: whose definitions they are, for a message."""
        new = {name: raw for name, raw in values.items() if name not in self._known()}
        if bounded and new:
            check_room(about, sum(map(len, new.values())), self.room)
        for name, raw in new.items():
            held, self._held = self._known(), None
            for key, piece in pieces_of(name, raw).items():
                self._store.commit([Put(f"{self._group}{key}", piece)], apart=True)
            self._held = held | {name}
            failpoint.reach("large_value_written")

    @property
    def room(self) -> int:
        """In bytes."""
        return MOST_BYTES - self.size

    @property
    def size(self) -> int:
        return sum(map(bytes_of, self._known()))

    def collect(self, referred: AbstractSet[str]) -> None:
        """`referred`: what the records refer to, at a revision at which all writes of this owner are visible."""
        if gone := self._known() - referred:
            held, self._held = self._known(), None
            for name in sorted(gone):
                self._store.commit([DeletePrefix(f"{self._group}{name}/")], apart=True)
            self._held = held - gone

    def deleted(self) -> None:
        """All of them were, in a transaction with what referred to them."""
        self._held = None

    def _known(self) -> frozenset[str]:
        """One of which a crash has left some pieces is written anew, or deleted with the changefeed."""
        if self._held is None:
            self._held = whole(key[len(self._group) :] for key in self._store.keys(self._group))
        return self._held
