"""`EntryCursor`: a find on the oplog of a simulated source: a range of entries, as one member knows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.regex import Regex
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from tests.simulation.source.oplog import Entry
from tests.simulation.source.replica_set import Member, ReplicaSet

_BEGINNING_OF_TIME = ClusterTime(0, 0)
_END_OF_TIME = ClusterTime(2**32 - 1, 0)


@dataclass
class EntryCursor:
    """Reads as far as its member knows commits at each call. It is lost if its position was truncated."""

    server: ReplicaSet
    member: Member
    query: Mapping[str, Any]
    election: int
    majority: bool
    backwards: bool
    left: int
    """How many entries are still wanted."""
    index: int = -1
    start: ClusterTime = _BEGINNING_OF_TIME
    end: ClusterTime = _END_OF_TIME
    done: bool = False
    snapshot: int = 0
    """The committed entries that it has seen. They do not get fewer, although its member may become a primary that begins with fewer."""

    def __post_init__(self) -> None:
        self.snapshot = self.member.visible
        self.start, self.end = _range(self.query.get("ts"))
        self._shows = _matcher(self.server, {name: value for name, value in self.query.items() if name != "ts"})
        first = max(self.server.first, self.server.index_of(self.start))
        self.index = min(self._known, self.server.index_of(self.end)) - 1 if self.backwards else first

    @property
    def _known(self) -> int:
        if not self.majority:
            return len(self.server.oplog)
        self.snapshot = max(self.snapshot, self.member.visible)
        return self.snapshot

    def next(self, most: int) -> list[Entry]:
        if self.index < self.server.first and not self.backwards:
            raise OperationFailure("CollectionScan died due to position in capped collection being deleted", 136)
        found: list[Entry] = []
        for entry in self._scanned():
            if self._shows(entry):
                found.append(entry)
                self.left -= 1
            if not self.left:
                self.done = True
            if self.done or len(found) >= most:
                return found
        self.done = True
        return found

    def _scanned(self) -> Iterator[Entry]:
        server = self.server
        while server.first <= self.index < self._known:
            entry = server.oplog[self.index]
            if entry.ts >= self.end or entry.ts < self.start:
                return
            self.index += -1 if self.backwards else 1
            yield entry


def _range(condition: Any) -> tuple[ClusterTime, ClusterTime]:
    start, end = ClusterTime(0, 0), _END_OF_TIME
    conditions = {"$gte": condition, "$lte": condition} if isinstance(condition, Timestamp) else dict(condition or {})
    for operator, value in conditions.items():
        ts = ClusterTime.from_bson(value)
        match operator:
            case "$gte":
                start = max(start, ts)
            case "$gt":
                start = max(start, ts.next())
            case "$lt":
                end = min(end, ts)
            case "$lte":
                end = min(end, ts.next())
            case _:
                raise AssertionError(f"the simulated source does not know {operator} of ts")
    return start, end


def _matcher(server: ReplicaSet, query: Mapping[str, Any]) -> Callable[[Entry], bool]:
    """The result of a query for an entry is cached."""
    encoded = b"oplog" + bson.encode(query)
    known = server.shown.setdefault(encoded, {})
    decoded = bson.decode(bson.encode(query))

    def shows(entry: Entry) -> bool:
        found = known.get(entry.raw)
        if found is None:
            found = known[entry.raw] = matches(decoded, entry.document)
        return found

    return shows


def matches(query: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    return all(_holds(name, condition, document) for name, condition in query.items())


def _holds(name: str, condition: Any, document: Mapping[str, Any]) -> bool:
    if name == "$or":
        return any(matches(query, document) for query in condition)
    if name == "$nor":
        return not any(matches(query, document) for query in condition)
    if name == "$and":
        return all(matches(query, document) for query in condition)
    values = list(_values(document, name.split(".")))
    if not isinstance(condition, dict):
        condition = {"$eq": condition}
    return all(_compares(operator, wanted, values) for operator, wanted in condition.items())


def _values(value: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path, including those inside arrays on the way."""
    if isinstance(value, list):
        for each in value:
            yield from _values(each, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values(value[path[0]], path[1:])


def _compares(operator: str, wanted: Any, values: list[Any]) -> bool:  # noqa: PLR0911  # one case per operator
    match operator:
        case "$eq":
            pattern = _pattern(wanted)
            return any(_text_matches(pattern, value) if pattern else value == wanted for value in values)
        case "$ne":
            return wanted not in values
        case "$in":
            return any(_compares("$eq", each, values) for each in wanted)
        case "$exists":
            return bool(values) is bool(wanted)
        case "$regex":
            return any(_text_matches(_pattern(wanted) or re.compile(wanted), value) for value in values)
        case "$not":
            return not all(_compares(each, of, values) for each, of in wanted.items())
        case "$elemMatch":
            return any(matches(wanted, value) for value in values)
        case "$gt":
            return any(bool(value > wanted) for value in values)
        case _:
            raise AssertionError(f"the simulated source does not know {operator}")


def _pattern(wanted: Any) -> re.Pattern[str] | None:
    if isinstance(wanted, Regex):
        return wanted.try_compile()
    return wanted if isinstance(wanted, re.Pattern) else None


def _text_matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.search(value) is not None
