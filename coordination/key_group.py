"""`KeyGroup`: the keys with one parent, at one revision; `MirroredValue`: one of them, whose value is read once for all who read the mirror. Pure.

A mirror keeps the schema of each of maybe 100,000 tables. Its bytes, and a record for each reader, would be most of a node's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, TypeVar, cast

from coordination.etcd.protocol import KeyValue

T = TypeVar("T")

_MOST_CHANGES = 1_000
"""That a group remembers, beyond its keys."""


class KeyGroup(dict[str, KeyValue]):
    """Knows the keys that changed since an earlier group of the same parent."""

    __slots__ = ("_changes", "_seen")

    def __init__(self, keys: Mapping[str, KeyValue] = MappingProxyType({}), changes: list[str] | None = None) -> None:
        super().__init__(keys)
        self._changes: list[str] = [] if changes is None else changes
        """Of all groups that follow one another. The first `_seen` were made up to this one."""
        self._seen = len(self._changes)

    def then(self) -> KeyGroup:
        """A copy, to be changed."""
        return KeyGroup(self, self._changes if len(self._changes) < _MOST_CHANGES + len(self) else None)

    def change(self, key: str, now: KeyValue | None) -> None:
        """Only before a reader has it."""
        if now is None:
            self.pop(key, None)
        else:
            self[key] = now
        self._changes.append(key)
        self._seen = len(self._changes)

    def changed_since(self, before: KeyGroup) -> AbstractSet[str]:
        if before._changes is self._changes:
            return frozenset(self._changes[before._seen : self._seen])
        return self.keys() | before.keys()


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredValue(KeyValue):
    record: object = field(default=None, compare=False, repr=False)
    """What was read. Then `value` is empty."""

    @classmethod
    def of(cls, kv: KeyValue) -> Self:
        """A key that was never changed has one number for both revisions."""
        mod_rev = kv.create_rev if kv.create_rev == kv.mod_rev else kv.mod_rev
        return cls(key=kv.key, value=kv.value, create_rev=kv.create_rev, mod_rev=mod_rev, lease=kv.lease)

    def read_once(self, read: Callable[[KeyValue], T]) -> T:
        """All readers read it alike. Several threads may: the value is taken before the look for a record, and let go after that is there."""
        value = self.value
        if self.record is None:
            unread = KeyValue(key=self.key, value=value, create_rev=self.create_rev, mod_rev=self.mod_rev)
            object.__setattr__(self, "record", read(unread))
            object.__setattr__(self, "value", b"")
        return cast("T", self.record)
