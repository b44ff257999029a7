"""`DuplicateFolder`: folds the reports of several shards about one DDL into one event.

Before 7.0 each shard reports a drop, before 8.1 a dropDatabase, and index changes and collMods of all versions can come once per shard. An
event is a duplicate if it repeats the last event of the same subject: a table, one set of its indexes, or a database. So `create i,
drop i, create i` stays three DDLs, and `create i, create j, create i, create j` is two.

A restart forgets the earlier events, and an index build may end on two shards hours apart. An undetected duplicate is harmless, since a
DDL may be applied twice.
"""

from __future__ import annotations

from collections import OrderedDict

from changefeed.event import DdlEvent, DdlType

_REMEMBERED = 10_000
_INDEX_TYPES = frozenset({DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES})
_BRINGS_TABLES = frozenset({DdlType.CREATE, DdlType.RENAME})

Subject = tuple[str, ...]


class DuplicateFolder:
    """Only for sharded sources: a replica set reports each DDL once."""

    def __init__(self) -> None:
        self._latest: OrderedDict[Subject, DdlEvent] = OrderedDict()

    def is_duplicate(self, event: DdlEvent) -> bool:
        if event.type in _BRINGS_TABLES:
            self._latest.pop(("", (event.renamed_to or event).db), None)
        subject = _subject(event)
        before = self._latest.get(subject)
        self._latest[subject] = event
        self._latest.move_to_end(subject)
        if len(self._latest) > _REMEMBERED:
            self._latest.popitem(last=False)
        return before is not None and _content(before) == _content(event)


def _subject(event: DdlEvent) -> Subject:
    if event.id is None:
        return ("", event.db)
    if event.type in _INDEX_TYPES:
        return (event.id, *(str(spec.get("name")) for spec in event.description.decode()["indexes"]))
    return (event.id,)


def _content(event: DdlEvent) -> tuple[object, ...]:
    return event.type, event.table, event.renamed_to, event.description.raw
