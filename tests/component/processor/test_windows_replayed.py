"""Random histories of few documents, replicated in random windows of which some are tried twice, end in equality."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import InvalidBSON
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from changefeed.position import Position, Window
from devstack.mongodb import Client
from tests.component.processor.windowing import Windowing

Change: TypeAlias = tuple[str, str, Any, Any]
"""Kind, table, `_id`, and what is written."""

_TABLES = ["plain", "unique", "folded"]
_IDS = [1.0, 1, "ONE", "one"]
_SCALARS = [0, 7, "x", None, Decimal128("1.50"), DatetimeMS(-(2**48)), DatetimeMS(2**48)]
_VALUES = st.sampled_from(
    [*_SCALARS, [], [1, 2, 3, 4], [{"b": 1}, {"b": 2}, 5], {}, {"0": {"b": 1}}, {"c.d": 1, "$e": 2}]
)
_PATHS = ["f", "a", "a.0", "a.1", "a.2.b", "a.0.b", "a.c", "n", "u"]


def _updates() -> st.SearchStrategy[Any]:
    path = st.sampled_from(_PATHS)
    sets = st.dictionaries(path, _VALUES, min_size=1, max_size=2).map(lambda fields: {"$set": fields})
    removes = st.sets(path, min_size=1, max_size=2).map(lambda names: {"$unset": dict.fromkeys(sorted(names), "")})
    pushes = st.tuples(st.sampled_from([-3, -1, 0, 1, 2]), st.lists(_VALUES, max_size=2)).map(
        lambda drawn: {"$push": {"a": {"$each": drawn[1], "$slice": drawn[0]}}}
    )
    dotted = st.tuples(st.sampled_from(["x.y", "$z", "a.0"]), _VALUES).map(
        lambda drawn: [
            {
                "$replaceWith": {
                    "$setField": {"field": {"$literal": drawn[0]}, "input": "$$ROOT", "value": {"$literal": drawn[1]}}
                }
            }
        ]
    )
    shortened = st.just([{"$set": {"a": {"$cond": [{"$isArray": "$a"}, [{"b": 9}, 8], "$a"]}}}])
    return st.one_of(sets, removes, pushes, dotted, shortened)


def _documents(*more: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["f", "a", "n", "u", "x.y", *more]), _VALUES, max_size=4)


_CHANGES: st.SearchStrategy[Change] = st.one_of(
    *(
        st.tuples(st.just(kind), st.sampled_from(_TABLES), st.sampled_from(_IDS), content)
        for kind, content in [
            ("insert", _documents("$z")),
            ("replace", _documents()),
            *[("update", _updates())] * 4,
            ("delete", st.none()),
        ]
    )
)
_HISTORIES = st.lists(st.lists(_CHANGES, min_size=1, max_size=3), min_size=12, max_size=20)
"""Each inner list of more than one is a transaction."""


class Lab:
    """One pair of databases for all histories."""

    def __init__(self, windowing: Windowing) -> None:
        self.windowing = windowing
        self._source = windowing.source[windowing.database]
        self._target = windowing.target[f"{windowing.database}_to"]

    def begin(self) -> None:
        """Both sides hold the same few documents."""
        for database in (self._source, self._target):
            for table in _TABLES:
                database[table].delete_many({})
                database[table].insert_many(
                    [{"_id": key, "u": [key], "a": [1, {"b": 2}], "f": {}} for key in _IDS[1:4:2]]
                )

    def live_through(self, history: list[list[Change]]) -> None:
        for changes in history:
            if len(changes) == 1:
                self._attempt(lambda: self._do(changes[0], None))  # noqa: B023 - called in this turn
            else:
                self._attempt(lambda: self._do_together(changes))  # noqa: B023 - called in this turn

    @staticmethod
    def _attempt(act: Callable[[], None]) -> None:
        """What the source refuses does not happen: a unique value that is taken, a path through a number.

        The driver's own helpers cannot read the answer when a far date is the value that was refused.
        """
        try:
            act()
        except (OperationFailure, InvalidBSON) as error:
            note(f"refused: {error}")

    def _do_together(self, changes: list[Change]) -> None:
        with self.windowing.source.start_session() as session, session.start_transaction():
            for change in changes:
                self._do(change, session)

    def _do(self, change: Change, session: ClientSession | None) -> None:
        kind, table, key, content = change
        rows = self._source[table]
        match kind:
            case "insert":
                rows.insert_one({"_id": key, **content}, session=session)
            case "replace":
                rows.replace_one({"_id": key}, content, upsert=True, session=session)
            case "update":
                rows.update_one({"_id": key}, content, session=session)
            case _:
                rows.delete_one({"_id": key}, session=session)


@pytest.fixture(scope="module")
def lab(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Lab]:
    database = "test_windows_replayed"
    names = [(source_client, database), (target_client, f"{database}_to")]
    for client, name in names:
        client.drop_database(name)
        client[name].create_collection("plain")
        client[name].create_collection("unique")
        client[name]["unique"].create_index("u", unique=True, sparse=True)
        client[name].create_collection("folded", collation={"locale": "en", "strength": 2})
    yield Lab(Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database))
    for client, name in names:
        client.drop_database(name)


_YES_OR_NO: st.SearchStrategy[Any] = st.booleans()


def _windows(draw: Any, start: Position, end: Position, events: list[Position]) -> list[Window]:
    """Cut anywhere, also between the events of a transaction."""
    cuts = (
        sorted(draw.draw(st.sets(st.sampled_from(events), min_size=min(2, len(events)), max_size=5))) if events else []
    )
    places = [start, *(cut for cut in cuts if start < cut < end), end]
    if start == end:
        return []
    return [Window(one, other) for one, other in pairwise(places)]


@settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(history=_HISTORIES, draw=st.data())
def test_random_histories_in_random_windows_end_in_equality(lab: Lab, history: list[list[Change]], draw: Any) -> None:
    """Each window may have been tried before, up to any event behind its start and as far as the barrier went then."""
    lab.begin()
    windowing = lab.windowing
    start = windowing.now()
    lab.live_through(history)
    end = windowing.now()
    events = windowing.events(Window(start, end))
    replay_until = start
    note(f"{len(events)} events in {start} to {end}")
    for window in _windows(draw, start, end, events):
        ahead = [event for event in events if window.start < event]
        if ahead and draw.draw(_YES_OR_NO):
            reached = draw.draw(st.sampled_from(ahead))
            windowing.run(Window(window.start, reached), replay_until=replay_until)
            replay_until = max(replay_until, reached)
        if draw.draw(_YES_OR_NO):
            windowing.run_wide(_windows(draw, window.start, window.end, events), replay_until=replay_until)
        else:
            windowing.run(window, replay_until=replay_until)
    different = windowing.differences()
    assert not different, "\n".join(different)
