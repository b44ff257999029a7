"""`View`: the keys under a prefix at one revision. `Replica`: the keys that a mirror has, and the views that it gives. Pure.

Keys with one parent are a group. A view shares its groups with the mirror, which copies a group before its first change after a view.
So taking a view costs O(groups), whatever the number of keys, and a copy is as large as the group that changed. A group knows the keys
that changed since an earlier group of the same name, so a reader need not compare 100,000 keys to find one.

A mirror keeps the schema of each of maybe 100,000 tables. Its bytes, and a record for each reader, would be most of a node's memory: a
`MirroredValue` is read once for all who read the mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self, TypeVar, cast

from coordination.etcd.protocol import Etcd, KeyValue, Snapshot, WatchUpdate

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


_NO_KEYS = KeyGroup()


@dataclass(frozen=True, slots=True)
class View:
    """The state at one revision. It never changes."""

    revision: int
    groups: Mapping[str, KeyGroup]
    etcd: Etcd | None = field(default=None, compare=False, repr=False)
    """For what no mirror has, and records of the view refer to."""

    def group(self, group: str) -> KeyGroup:
        """The keys directly below `group`, which ends with a slash."""
        return self.groups.get(group, _NO_KEYS)

    def get(self, key: str) -> KeyValue | None:
        return self.group(group_of(key)).get(key)

    def groups_below(self, prefix: str) -> list[str]:
        return sorted(group for group in self.groups if group.startswith(prefix) and group != prefix)


def group_of(key: str) -> str:
    return key[: key.rindex("/") + 1]


class Replica:
    """The state of a mirror and how it changes: no I/O, no clock, no threads."""

    def __init__(self, etcd: Etcd | None = None) -> None:
        self.revision = 0
        self._etcd = etcd
        self._groups: dict[str, KeyGroup] = {}
        self._shared: set[str] = set()
        self._view = View(0, {}, etcd)

    def reset(self, snapshot: Snapshot) -> None:
        """What has not changed stays the same object."""
        groups: dict[str, dict[str, KeyValue]] = {}
        for kv in snapshot.items:
            name = group_of(kv.key)
            known = self._groups.get(name, _NO_KEYS).get(kv.key)
            same = known is not None and known.mod_rev == kv.mod_rev
            groups.setdefault(name, {})[kv.key] = known if known is not None and same else MirroredValue.of(kv)
        same_groups = {name: self._groups[name] for name, keys in groups.items() if self._groups.get(name) == keys}
        self._groups = {name: KeyGroup(keys) for name, keys in groups.items()} | same_groups
        self._shared &= same_groups.keys()
        self.revision = snapshot.revision

    def add(self, apart: Snapshot) -> None:
        """The keys apart, as they were at this revision."""
        groups: dict[str, dict[str, KeyValue]] = {}
        for kv in apart.items:
            groups.setdefault(group_of(kv.key), {})[kv.key] = MirroredValue.of(kv)
        self._groups |= {name: KeyGroup(keys) for name, keys in groups.items()}
        self._view = View(0, {})

    def leave_out(self, apart: str) -> None:
        """The keys from that one on."""
        self._groups = {name: group for name, group in self._groups.items() if name < apart}
        self._view = View(0, {})

    def apply(self, update: WatchUpdate) -> None:
        """Updates up to the present revision are ignored: the snapshot or an earlier watch contained them."""
        if update.revision <= self.revision:
            return
        for change in update.changes:
            now = None if change.now is None else MirroredValue.of(change.now)
            self._writable(group_of(change.key)).change(change.key, now)
        self.revision = update.revision

    def view(self) -> View:
        if self._view.revision != self.revision:
            self._groups = {name: group for name, group in self._groups.items() if group}
            self._shared = set(self._groups)
            self._view = View(self.revision, dict(self._groups), self._etcd)
        return self._view

    def _writable(self, name: str) -> KeyGroup:
        group = self._groups.get(name)
        if group is None or name in self._shared:
            group = self._groups[name] = KeyGroup() if group is None else group.then()
            self._shared.discard(name)
        return group
