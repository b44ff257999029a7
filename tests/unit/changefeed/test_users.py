"""What makes a target's users and roles equal to the source's."""

from __future__ import annotations

from typing import Any

from changefeed.users import PrincipalChanges, PrincipalNames, Principals, same_role


def user(name: str, password: str = "p", **more: Any) -> dict[str, Any]:
    return {"_id": f"admin.{name}", "user": name, "db": "admin", "credentials": password, **more}


def role(name: str, *actions: str, inherits: tuple[str, ...] = ()) -> dict[str, Any]:
    privileges = [{"resource": {"db": "shop", "collection": ""}, "actions": list(actions)}] if actions else []
    roles = [{"role": each, "db": "admin"} for each in inherits]
    return {"_id": f"admin.{name}", "role": name, "db": "admin", "privileges": privileges, "roles": roles}


def principals(*documents: dict[str, Any], own: str = "") -> Principals:
    return Principals(
        users={each["_id"]: each for each in documents if "user" in each},
        roles={each["_id"]: each for each in documents if "role" in each},
        own=frozenset({f"admin.{own}"} if own else ()),
    )


def names(users: str = "", roles: str = "") -> PrincipalNames:
    return PrincipalNames(
        users=frozenset(f"admin.{name}" for name in users.split()),
        roles=frozenset(f"admin.{name}" for name in roles.split()),
    )


def test_what_the_source_has_is_written_and_what_it_has_no_more_is_dropped() -> None:
    source = principals(user("ann"), user("bob", "new"), role("reader", "find"))
    target = principals(
        user("bob", "old", userId=7), user("eve"), user("theirs"), role("old", "find"), role("own", "find")
    )
    changes = PrincipalChanges.between(source, target, names("bob eve", "old"))
    assert [each["_id"] for each in changes.users] == ["admin.ann", "admin.bob"]
    assert changes.users[1]["userId"] == 7, "sessions of the target are bound to it"
    assert (changes.new_roles, [each["_id"] for each in changes.roles]) == (("admin.reader",), ["admin.reader"])
    assert changes.dropped == names("eve", "old")
    assert changes.written == names("ann bob eve", "reader old"), "recorded before anything is written or dropped"
    assert changes.any


def test_equal_sides_need_nothing() -> None:
    source = principals(user("ann", userId=1), role("reader", "find", "insert", inherits=("a", "b")))
    target = principals(user("ann", userId=2), role("reader", "insert", "find", inherits=("b", "a")), user("theirs"))
    changes = PrincipalChanges.between(source, target, names("ann gone", "reader"))
    assert not changes.any
    assert changes.written == names("ann", "reader"), "what is dropped is forgotten"


def test_the_users_that_sluice_is_connected_as_are_left_alone() -> None:
    source = principals(user("reader", "of the source"), user("writer", "of the source"), own="reader")
    target = principals(user("reader", "of the target"), user("writer", "of the target"), own="writer")
    assert not PrincipalChanges.between(source, target, names()).any
    assert not PrincipalChanges.between(principals(own="reader"), target, names("reader writer")).dropped.users - {
        "admin.reader"
    }
    assert "admin.writer" not in PrincipalChanges.between(principals(), target, names("writer")).dropped.users


def test_roles_differ_by_what_they_grant() -> None:
    assert same_role(role("r", "find"), {**role("r", "find"), "isBuiltin": False, "inheritedRoles": []})
    assert not same_role(role("r", "find"), role("r", "find", "insert"))
    assert not same_role(role("r", "find"), role("r", "find", inherits=("a",)))
    limited = {**role("r", "find"), "authenticationRestrictions": [{"clientSource": ["127.0.0.1"]}]}
    assert not same_role(role("r", "find"), limited)
    shown = {**limited, "authenticationRestrictions": [{"clientSource": ["127.0.0.1/32"]}]}
    assert same_role(limited, shown), "as 4.4 shows it"
    assert not same_role(role("r"), None)
