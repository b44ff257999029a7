"""What a consumer knows of tables from the topic of DDL."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sluice_client.feed_history import FeedHistory, just_before
from sluice_client.feed_reader import NOTHING, Copied, CopyBegins, MessageGap, Round, Shown, StoredMessage, Watermark
from sluice_client.pos import pos_after, pos_of

_A, _B = "aa" * 16, "bb" * 16
_SCHEMA: dict[str, Any] = {"kind": "collection", "options": {}, "indexes": [], "shardKey": None}


def _at(seconds: int) -> Position:
    return Position(ClusterTime(seconds, 1))


def _pos(seconds: int) -> str:
    return pos_of(_at(seconds))


def _message(op: str, seconds: int, table: str = _A, ns: str = "shop.a", **more: Any) -> StoredMessage:
    fields = {"v": 1, "feed": "orders", "op": op, "ns": ns, "id": table, "pos": _pos(seconds), **more}
    return StoredMessage(_pos(seconds), table, json.dumps(fields).encode())


def _history(*messages: StoredMessage) -> FeedHistory:
    history = FeedHistory(lambda begins: f"{begins.table} begins again there")
    for message in [*messages, *messages]:
        history.take(message)
    return history


def _mark(seconds: int, **behind: int) -> Watermark:
    return Watermark(_at(seconds), {TableId(_B): _at(at) for at in behind.values()})


def _texts(shown: list[Shown]) -> list[str]:
    found: list[str] = []
    for each in shown:
        match each.content:
            case StoredMessage() as message:
                found.append(message.fields.get("type") or message.fields["op"])
            case Copied():
                found.append("copied")
            case CopyBegins():
                found.append("copy")
    return found


def test_a_document_of_a_copy_that_has_ended_before_its_place_does_not_count() -> None:
    ddls = _message("ddl", 105, type="recopy"), _message("ddl", 110, type="drop")
    history = _history(_message("b", 100, schema=_SCHEMA), *ddls)
    ended = {(version, at) for version in (100, 105) for at in (102, 107, 112) if version < at}
    ended = {(version, at) for version, at in ended if history.ends_copy(_A, _pos(version), _pos(at))}
    assert ended == {(100, 107), (100, 112), (105, 112)}


@pytest.mark.parametrize("told_first", [True, False])
def test_tables_of_a_begin_that_failed_do_not_count(told_first: bool) -> None:
    """One of them was dropped before the begin that did not (seed 2 of the simulation, into topics)."""
    history = FeedHistory(lambda begins: f"{begins.table} begins again there")
    if told_first:
        history.begin(_pos(105))
    for at, table in ((100, _A), (100, _B), (105, _A)):
        history.take(_message("b", at, table, schema=_SCHEMA))
    if not told_first:
        history.begin(_pos(105))
    history.begin(_pos(100))
    assert [(each.table, each.at) for each in history.skimmed(Round(NOTHING, _mark(120)))] == [(_A, _pos(105))]


def _shown(history: FeedHistory, before: Watermark, now: Watermark) -> list[str]:
    return _texts(history.shown(Round(before, now)))


_BEGUN = _message("b", 100, copy=True, schema=_SCHEMA)
_EMPTIED = _message("ddl", 110, type="recopy")
_CREATED = _message("ddl", 105, _B, "shop.b", type="create", spec={})


def test_a_table_that_leaves_and_comes_back_begins_again() -> None:
    """Renamed to a name outside the filter, which drops it, and renamed back. Its identity is the same."""
    left, back = _message("ddl", 110, type="drop"), _message("b", 115, copy=True, schema=_SCHEMA)
    history = _history(_BEGUN, _message("b", 107, schema=_SCHEMA), left, back, _message("b", 117, schema=_SCHEMA))
    assert _shown(history, NOTHING, _mark(120)) == ["copy", "b", "drop", "copy", "b"]
    assert history.begins(_A) == [_pos(100), _pos(115)]
    with_its_database = _message("ddl", 119, "", type="dropDatabase", ids=[_A])
    history.take(with_its_database)
    assert [each.table for each in history.skimmed(Round(_mark(119), _mark(120)))] == [_A], (
        "Spark shows it behind its rows"
    )
    history.take(_message("b", 120, schema=_SCHEMA))
    assert history.begins(_A) == [_pos(100), _pos(115), _pos(120)]


def test_a_table_begins_with_its_first_schema() -> None:
    history = _history(_BEGUN, _message("b", 107, schema=_SCHEMA))
    assert _shown(history, NOTHING, _mark(120)) == ["copy", "b"]
    assert _shown(history, _mark(101), _mark(120)) == []


def test_a_created_table_begins_with_its_ddl_alone() -> None:
    history = _history(_CREATED, _message("b", 105, _B, "shop.b", schema=_SCHEMA))
    assert _shown(history, NOTHING, _mark(120)) == ["create"]


def test_what_is_at_a_watermark_comes_after_it() -> None:
    history = _history(_BEGUN, _EMPTIED)
    assert _shown(history, NOTHING, _mark(110)) == ["copy", "b"]
    assert _shown(history, _mark(110), _mark(111)) == ["recopy", "copy"]


def test_a_table_that_is_behind_has_bounds_of_its_own() -> None:
    history = _history(_BEGUN, _CREATED)
    assert _shown(history, NOTHING, _mark(120, b=103)) == ["copy", "b"]
    assert _shown(history, _mark(120, b=103), _mark(121)) == ["create"]


def test_a_copy_ends_where_changes_fit_once() -> None:
    history = _history(_BEGUN, _EMPTIED, _message("c", 115, start=_pos(110)))
    assert _shown(history, NOTHING, _mark(115)) == ["copy", "b", "recopy", "copy"]
    assert _shown(history, _mark(115), _mark(130)) == ["copied"]
    assert _shown(history, _mark(130), _mark(140)) == []


def test_the_end_of_a_copy_that_is_said_late_counts_from_the_watermark_on() -> None:
    history = _history(_BEGUN)
    assert _shown(history, NOTHING, _mark(120)) == ["copy", "b"]
    history.take(_message("c", 115, start=_pos(100)))
    (shown,) = history.shown(Round(_mark(120), _mark(130)))
    assert (shown.at, shown.content) == (_pos(120), Copied(TableId(_A)))


def test_the_end_of_a_copy_that_was_given_up_says_nothing() -> None:
    history = _history(_BEGUN, _EMPTIED, _message("c", 112, start=_pos(100)))
    assert "copied" not in _shown(history, NOTHING, _mark(130))


_AGAIN = _message("ddl", 110, type="recopy", anew=True)


def test_a_copy_anew_that_is_interrupted_at_once_begins_at_the_interruption() -> None:
    """A table has one schema for each of its lives, and its indexes wait from the first copy on."""
    history = _history(_BEGUN, _AGAIN, _message("b", 110, schema=_SCHEMA), _message("ddl", 115, type="recopy"))
    history.take(_message("b", 115, schema=_SCHEMA))
    assert _shown(history, _mark(105), _mark(115)) == ["recopy", "copy", "b"]
    assert _shown(history, _mark(115), _mark(120)) == ["recopy", "copy"]


def test_a_table_that_begins_again_without_a_schema_is_a_gap() -> None:
    history = _history(_BEGUN, _AGAIN)
    with pytest.raises(MessageGap, match="begins again there"):
        _shown(history, NOTHING, _mark(120))


def test_a_skimmed_feed_has_no_copies() -> None:
    history = _history(_BEGUN, _EMPTIED, _message("c", 115, start=_pos(110)))
    assert _texts(history.skimmed(Round(NOTHING, _mark(130)))) == ["b", "recopy"]


def test_a_copied_document_stands_where_it_was_read_but_not_before_the_begin_of_its_copy() -> None:
    history = _history(_BEGUN, _EMPTIED)
    before = pos_after(_at(110).ts.previous())
    assert just_before(_pos(110)) == before
    assert history.place_of_copy(_A, before) == _pos(110)
    assert history.place_of_copy(_A, pos_after(_at(104).ts)) == pos_after(_at(104).ts)
    assert history.place_of_copy(_A, pos_after(_at(112).ts)) == pos_after(_at(112).ts)


def test_names_are_all_that_tables_with_rows_have_had() -> None:
    history = _history(
        _BEGUN,
        _CREATED,
        _message("ddl", 106, _B, "shop.b", type="rename", to="shop.c", dropped=None),
        _message("b", 1, "view:shop.v", "shop.v", schema={**_SCHEMA, "kind": "view"}),
        _message("ddl", 107, "view:shop.w", "shop.w", type="create", spec={"viewOn": "a", "pipeline": []}),
    )
    assert list(history.names) == ["shop.a", "shop.b", "shop.c"]
