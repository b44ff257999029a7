"""Random histories of few documents, replicated in random windows of which some are retried, end in equality.

Names with dots and dollars occur in whole documents and values. Updates of such a field are left out: change streams of servers before 6.1
write `x.y` both for a field of that name and for the field `y` in `x` (docs/reference/source.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import InvalidBSON
from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from changefeed.position import Position, Window
from devstack.mongodb.server import Client
from tests.component.processor.windowing import Windowing

Change: TypeAlias = tuple[str, str, Any, Any]
"""Kind, table, `_id`, and what is written."""

_TABLES = ["plain", "unique", "folded"]
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_ANY_DATE: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
_IDS = [1.0, 1, "ONE", "one"]
_SCALARS = [0, 7, "x", None, Decimal128("1.50"), DatetimeMS(-(2**48)), DatetimeMS(2**48)]
_SHAPES = [*_SCALARS, [], [1, 2, 3, 4], [{"b": 1}, {"b": 2}, 5], {}, {"0": {"b": 1}}]
_CHANGED_INSIDE = st.sampled_from(_SHAPES)
_VALUES = st.sampled_from([*_SHAPES, {"c.d": 1, "$e": 2}])
_PATHS = ["f", "a", "a.0", "a.1", "a.2.b", "a.0.b", "a.c", "n", "u"]


def _updates() -> st.SearchStrategy[Any]:
    path = st.sampled_from(_PATHS)
    sets = _fields(_PATHS, min_size=1, max_size=2).map(lambda fields: {"$set": fields})
    removes = st.sets(path, min_size=1, max_size=2).map(lambda names: {"$unset": dict.fromkeys(sorted(names), "")})
    pushes = st.tuples(st.sampled_from([-3, -1, 0, 1, 2]), st.lists(_CHANGED_INSIDE, max_size=2)).map(
        lambda drawn: {"$push": {"a": {"$each": drawn[1], "$slice": drawn[0]}}}
    )
    shortened = st.just([{"$set": {"a": {"$cond": [{"$isArray": "$a"}, [{"b": 9}, 8], "$a"]}}}])
    return st.one_of(sets, removes, pushes, shortened)


def _documents(*more: str) -> st.SearchStrategy[dict[str, Any]]:
    return _fields(["f", "a", "n", "u", "x.y", *more], max_size=4)


def _fields(names: list[str], *, min_size: int = 0, max_size: int) -> st.SearchStrategy[dict[str, Any]]:
    field = st.sampled_from(names).flatmap(
        lambda name: st.tuples(st.just(name), _CHANGED_INSIDE if name.startswith("a") else _VALUES)
    )
    return st.lists(field, min_size=min_size, max_size=max_size, unique_by=lambda field: field[0]).map(dict)


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
        """Gives both sides the same few documents."""
        for database in (self._source, self._target):
            for table in _TABLES:
                database[table].delete_many({})
                database[table].insert_many(
                    [{"_id": key, "u": [key], "a": [1, {"b": 2}], "f": {}} for key in _IDS[1:4:2]]
                )

    def touch(self) -> None:
        """Updates every row so that a damaged row must be noticed."""
        for table in _TABLES:
            for row in list(self._source[table].with_options(_ANY_DATE).find({}, {"a": 1})):
                inner = {"a.0": "touched"} if isinstance(row.get("a"), list) else {"a.c": "touched"}
                deep = inner if isinstance(row.get("a"), list | dict) else {}
                self._source[table].update_one({"_id": row["_id"]}, {"$set": {"touched": 1, **deep}})

    def damage(self, table: str, key: Any, *, deletes: bool) -> bool:
        """Damages a row of the target, and returns whether it was changed."""
        row = self._source[table].with_options(_ANY_DATE).find_one({"_id": key})
        if deletes or row is None or not isinstance(row.get("a"), list | dict):
            return self._target[table].delete_one({"_id": key}).deleted_count > 0
        return self._target[table].update_one({"_id": key}, {"$set": {"a": "damaged"}}).modified_count > 0

    def mend(self) -> None:
        """Repairs the target by hand, as a user does who reads the message."""
        for table in _TABLES:
            self._target[table].delete_many({})
            if rows := list(self._source[table].with_options(_RAW).find()):
                self._target[table].with_options(_RAW).insert_many(rows)

    def live_through(self, history: list[list[Change]]) -> None:
        for changes in history:
            if len(changes) == 1:
                self._attempt(lambda: self._do(changes[0], None))  # noqa: B023 - called in this iteration
            else:
                self._attempt(lambda: self._do_together(changes))  # noqa: B023 - called in this iteration

    @staticmethod
    def _attempt(act: Callable[[], None]) -> None:
        """Ignores a refusal by the source: a unique value that is taken, a path through a number.

        The driver's own helpers cannot read the answer when the refused value is a date out of range.
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


def _places(draw: Any, start: Position, end: Position, events: list[Position]) -> list[Position]:
    """The bounds of the windows: any position, also between the events of a transaction."""
    cuts = (
        sorted(draw.draw(st.sets(st.sampled_from(events), min_size=min(2, len(events)), max_size=5))) if events else []
    )
    return [start, *(cut for cut in cuts if start < cut < end), end] if start < end else [start]


def _windows(draw: Any, start: Position, end: Position, events: list[Position]) -> list[Window]:
    return [Window(one, other) for one, other in pairwise(_places(draw, start, end, events))]


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(history=_HISTORIES, draw=st.data())
def test_random_histories_in_random_windows_end_in_equality(lab: Lab, history: list[list[Change]], draw: Any) -> None:
    """Before each window an attempt may have run from the same start to any later event, as far as the barrier was then."""
    lab.begin()
    windowing = lab.windowing
    start = windowing.now()
    lab.live_through(history)
    end = windowing.now()
    events = windowing.events(Window(start, end))
    replay_until = start
    note(f"{len(events)} events in {start} to {end}")
    places, width = _places(draw, start, end, events), 1
    while len(places) > 1:
        window = Window(places[0], places[min(width, len(places) - 1)])
        ahead = [event for event in events if window.start < event]
        if ahead and draw.draw(_YES_OR_NO):
            reached = draw.draw(st.sampled_from(ahead))
            windowing.run(Window(window.start, reached), replay_until=replay_until)
            replay_until = max(replay_until, reached)
        if draw.draw(_YES_OR_NO):
            outcome = windowing.run_wide(_windows(draw, window.start, window.end, events), replay_until=replay_until)
        else:
            outcome = windowing.run(window, replay_until=replay_until)
        replay_until = max(replay_until, window.end)
        places, width = (places, 2 * width) if outcome.rows.unsettled else (places[width:], 1)
    different = windowing.differences()
    assert not different, "\n".join(different)


@settings(max_examples=25, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@given(history=_HISTORIES, repairs=st.booleans(), draw=st.data())
def test_random_damage_is_repaired_or_found_again_until_it_is_mended(
    lab: Lab, history: list[list[Change]], repairs: bool, draw: Any
) -> None:
    """Damage is done between attempts. When the whole history is applied, all rows are as at the source."""
    lab.begin()
    windowing = lab.windowing
    windowing.on_divergence("repair" if repairs else "fail")
    start = windowing.now()
    lab.live_through(history)
    touched = windowing.now()
    lab.touch()
    end = windowing.now()
    events = windowing.events(Window(start, end))
    places, width, replay_until, damaged, failures = _places(draw, start, end, events), 1, start, 0, 0
    while len(places) > 1:
        window = Window(places[0], places[min(width, len(places) - 1)])
        while window.start < touched and draw.draw(_YES_OR_NO):
            table, key = draw.draw(st.sampled_from(_TABLES)), draw.draw(st.sampled_from(_IDS))
            damaged += lab.damage(table, key, deletes=draw.draw(_YES_OR_NO))
        outcome = windowing.attempt_at(window, replay_until=replay_until)
        replay_until = max(replay_until, window.end)
        if outcome.error is None:
            assert damaged or not outcome.rows.tally.repaired, outcome.rows.samples
            assert not outcome.rows.tally.rejected, outcome.rows.samples
            places, width = (places, 2 * width) if outcome.rows.unsettled else (places[width:], 1)
            continue
        failures += 1
        assert not repairs, outcome.error.message
        assert damaged, outcome.error.message
        assert outcome.error.code == "divergence", outcome.error
        if failures > 1 and draw.draw(_YES_OR_NO):
            lab.mend()
    different = windowing.differences()
    assert not different, "\n".join(different)
