"""The rights that dead letters need."""

from __future__ import annotations

from typing import Any

import pytest

from admin.preflight.sink_probe import letter_problems
from changefeed.table import TableName

_LETTERS = TableName("sluice", "rejected")
_NEEDED = ["find", "insert", "update", "remove"]


def _user(resource: dict[str, Any], actions: list[str]) -> dict[str, Any]:
    return {
        "authenticatedUsers": [{"user": "u"}],
        "authenticatedUserPrivileges": [{"resource": resource, "actions": actions}],
    }


@pytest.mark.parametrize(
    "authenticated",
    [
        _user({"db": "sluice", "collection": ""}, _NEEDED),
        _user({"db": "sluice", "collection": "rejected"}, _NEEDED),
        _user({"db": "", "collection": ""}, _NEEDED),
        _user({"anyResource": True}, ["anyAction"]),
        {"authenticatedUsers": []},
    ],
)
def test_enough(authenticated: dict[str, Any]) -> None:
    assert list(letter_problems(authenticated, _LETTERS)) == []


def test_what_is_missing_is_named_with_the_remedy() -> None:
    [problem] = letter_problems(_user({"db": "sluice", "collection": "rejected"}, ["find", "insert"]), _LETTERS)
    assert problem == (
        "dead_letter: the sink's user may not update, remove in sluice.rejected; grant it readWrite in database sluice"
    )
    [problem] = letter_problems(_user({"db": "shop", "collection": ""}, _NEEDED), _LETTERS)
    assert "may not find, insert, update, remove" in problem
