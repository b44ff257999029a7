"""The rights that a changefeed needs, and the commands that grant what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from admin.preflight.privileges import Privileges, missing_at_sink, missing_at_source
from changefeed.capture import Capture
from changefeed.table import TableName

_LETTERS = TableName("sluice", "rejected")
_KEEPING = ["find", "insert", "update", "remove"]
_WRITING = [
    *(*_KEEPING, "createCollection", "dropCollection", "createIndex", "dropIndex"),
    *("collMod", "listCollections", "listIndexes", "bypassDocumentValidation"),
]
_READING = ["find", "listCollections", "listIndexes", "changeStream"]


def _user(*granted: tuple[dict[str, Any], list[str]]) -> Privileges:
    privileges = [{"resource": resource, "actions": actions} for resource, actions in granted]
    users = [{"user": "sluice", "db": "users"}]
    return Privileges.of({"authInfo": {"authenticatedUsers": users, "authenticatedUserPrivileges": privileges}})


def _in(db: str, coll: str = "") -> dict[str, Any]:
    return {"db": db, "collection": coll}


_EVERYTHING = _user(({"anyResource": True}, ["anyAction"]))
_NOBODY = Privileges.of({"authInfo": {"authenticatedUsers": []}})


@pytest.mark.parametrize(
    "privileges",
    [
        _user((_in("sluice"), _KEEPING)),
        _user((_in("sluice", "rejected"), _KEEPING)),
        _user((_in(""), _KEEPING)),
    ],
)
def test_enough_for_dead_letters(privileges: Privileges) -> None:
    assert privileges.lacking(_KEEPING, "sluice", "rejected") == []


@pytest.mark.parametrize("privileges", [_EVERYTHING, _NOBODY])
def test_who_may_do_everything_lacks_nothing(privileges: Privileges) -> None:
    assert list(missing_at_sink(privileges, ["shop"], _LETTERS)) == []
    assert list(missing_at_sink(privileges, [], None)) == []
    for capture in (Capture.OPLOG, Capture.CHANGE_STREAM):
        assert list(missing_at_source(privileges, capture, databases=["shop"], others=True, sharded=True)) == []


def test_what_is_missing_at_a_sink_is_named_with_the_command_that_grants_it() -> None:
    privileges = _user((_in("shop"), _KEEPING), (_in("sluice", "rejected"), ["find", "insert"]))

    grant = '; grant it with db.getSiblingDB("users").grantRolesToUser("sluice", [{'
    assert [problem.split(grant) for problem in missing_at_sink(privileges, ["shop", "audit"], _LETTERS)] == [
        [
            f"sink: its user 'sluice' may not {', '.join(_WRITING)} in database audit",
            'role: "readWrite", db: "audit"}, {role: "dbAdmin", db: "audit"}])',
        ],
        [
            f"sink: its user 'sluice' may not {', '.join(_WRITING[4:])} in database shop",
            'role: "readWrite", db: "shop"}, {role: "dbAdmin", db: "shop"}])',
        ],
        [
            "dead_letter: its user 'sluice' may not update, remove in sluice.rejected",
            'role: "readWrite", db: "sluice"}])',
        ],
    ]


def test_who_may_not_write_past_validators_may_write_no_row() -> None:
    rest = [action for action in _WRITING if action != "bypassDocumentValidation"]
    [problem] = missing_at_sink(_user((_in("shop"), rest)), ["shop"], None)

    assert "its user 'sluice' may not bypassDocumentValidation in database shop; grant it" in problem


def test_who_writes_nowhere_is_refused_also_while_nothing_is_to_be_written() -> None:
    [problem] = missing_at_sink(_user((_in(""), _READING)), [], None)

    assert "may not write in any database" in problem
    assert list(missing_at_sink(_user((_in("shop"), _WRITING)), [], None)) == []


def test_what_is_missing_at_a_source_is_one_list() -> None:
    privileges = _user((_in("shop"), ["find"]), ({"cluster": True}, ["appendOplogNote"]))

    found = list(missing_at_source(privileges, Capture.OPLOG, databases=["shop"], others=True, sharded=False))

    assert [problem.partition("; grant it with db.getSiblingDB")[0] for problem in found] == [
        "source: its user 'sluice' may not listDatabases on the cluster",
        "source: its user 'sluice' may not listCollections, listIndexes in database shop",
        "source: its user 'sluice' may not find in local.oplog.rs",
    ]
    assert [problem.partition('("sluice", ')[2] for problem in found] == [
        '[{role: "readAnyDatabase", db: "admin"}])',
        '[{role: "read", db: "shop"}])',
        '[{role: "read", db: "local"}])',
    ]


def test_a_filter_that_names_its_databases_needs_no_list_of_them() -> None:
    privileges = _user((_in("shop"), _READING), (_in("local", "oplog.rs"), ["find"]))

    assert list(missing_at_source(privileges, Capture.OPLOG, databases=["shop"], others=False, sharded=False)) == []


def test_a_right_in_all_databases_is_none_in_local_and_config() -> None:
    privileges = _user((_in(""), _READING), ({"cluster": True}, ["listDatabases"]))

    oplog = list(missing_at_source(privileges, Capture.OPLOG, databases=["shop"], others=True, sharded=False))
    router = list(missing_at_source(privileges, Capture.CHANGE_STREAM, databases=["shop"], others=True, sharded=True))

    assert ["local.oplog.rs" in problem for problem in oplog] == [True]
    assert ["config.collections" in problem for problem in router] == [True]


def test_a_change_stream_needs_rights_in_all_databases() -> None:
    privileges = _user((_in("shop"), _READING), ({"cluster": True}, ["listDatabases"]))

    [problem] = missing_at_source(privileges, Capture.CHANGE_STREAM, databases=["shop"], others=True, sharded=False)

    assert "may not find, listCollections, listIndexes, changeStream in all databases" in problem
    assert 'readAnyDatabase", db: "admin"' in problem
