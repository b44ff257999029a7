from __future__ import annotations

from typing import Any

import bson
import pytest

from sink.dependence import Dependence

_PLACES = Dependence.of(
    [
        {"key": {"mail": 1}},
        {"key": {"home.street": 1, "lines.sku": -1}, "partialFilterExpression": {"$or": [{"state": "open"}]}},
    ],
    capped=False,
)


def _update(*updated: str, removed: tuple[str, ...] = (), truncated: tuple[str, ...] = (), **more: Any) -> bytes:
    cut = [{"field": field, "newSize": 1} for field in truncated]
    return bson.encode(
        {"updatedFields": dict.fromkeys(updated, 1), "removedFields": removed, "truncatedArrays": cut, **more}
    )


@pytest.mark.parametrize(
    "update",
    [
        _update("mail"),
        _update("n", "mail.of.mine"),
        _update("home"),
        _update("home.street.3.name"),
        _update("lines.7.sku"),
        _update("lines.7"),
        _update("state"),
        _update(removed=("mail",)),
        _update(truncated=("lines",)),
        _update("mails", "mail_", disambiguatedPaths={"mails": ["mails"]}),
        _update("n", upsert=True),
    ],
)
def test_an_update_of_a_path_of_a_unique_key_above_or_below_it_touches_it(update: bytes) -> None:
    assert _PLACES.touched_by(update)


@pytest.mark.parametrize(
    "update", [_update("n"), _update("home.town", "mails"), _update("lines.7.count"), _update("sku")]
)
def test_other_updates_do_not(update: bytes) -> None:
    assert not _PLACES.touched_by(update)


@pytest.mark.parametrize(("name", "touches"), [("mail", True), ("mails", False)])
def test_an_update_is_judged_by_names_whatever_text_it_sets(name: str, *, touches: bool) -> None:
    update = bson.encode({"updatedFields": {name: "??"}}).replace(b"??", b"\xff\xfe")
    assert _PLACES.touched_by(update) is touches


def test_any_update_may_touch_a_text_index_and_none_a_capped_table_without_one() -> None:
    assert Dependence.of([{"key": {"_fts": "text", "_ftsx": 1}}], capped=False).touched_by(_update("n"))
    assert not Dependence.of([], capped=True).touched_by(_update("n"))
