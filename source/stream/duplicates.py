"""Folding what each shard says of one DDL into one event.

Before 7.0 each shard reports a drop, before 8.1 a dropDatabase, and index changes and collMods of all versions can come once per shard. An
event is a duplicate when it says again the last thing that was said of the same subject: a table, one set of its
indexes, a database. So `create i, drop i, create i` stays three DDLs, and `create i, create j, create i, create j` is two.

A restart forgets what was said, and a build may end on two shards hours apart: a duplicate that slips through is
harmless, since applying a DDL a second time is.
"""

from __future__ import annotations

from collections import OrderedDict

from changefeed.event import DdlEvent, DdlType

_REMEMBERED = 10_000
_INDEX_TYPES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES})
_BRINGS_TABLES = frozenset({DdlType.CREATE, DdlType.RENAME})

Subject = tuple[str, ...]


class DuplicateFolder:
    """Only for sharded sources: a replica set says everything once."""

    def __init__(self) -> None:
        self._last_said: OrderedDict[Subject, DdlEvent] = OrderedDict()

    def is_duplicate(self, event: DdlEvent) -> bool:
        if event.type in _BRINGS_TABLES:
            self._last_said.pop(("", (event.renamed_to or event).db), None)
        subject = _subject(event)
        before = self._last_said.get(subject)
        self._last_said[subject] = event
        self._last_said.move_to_end(subject)
        if len(self._last_said) > _REMEMBERED:
            self._last_said.popitem(last=False)
        return before is not None and _said(before) == _said(event)


def _subject(event: DdlEvent) -> Subject:
    if event.id is None:
        return ("", event.db)
    if event.type in _INDEX_TYPES:
        return (event.id, *(str(spec.get("name")) for spec in event.description.decode()["indexes"]))
    return (event.id,)


def _said(event: DdlEvent) -> tuple[object, ...]:
    return event.type, event.table, event.renamed_to, event.description.raw
