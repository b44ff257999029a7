"""`KeyGroup`: the keys with one parent, at one revision. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from coordination.etcd.protocol import KeyValue

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
