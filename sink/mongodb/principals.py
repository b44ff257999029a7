"""`TargetPrincipals`: the users and roles of the target, read and written. Nothing of them may be logged.

Users are written as they are stored, since no command takes the credentials of another server; the server forgets what it has cached of
them. Roles are written by commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from pymongo.write_concern import WriteConcern

from changefeed.documents.document import STRICT
from changefeed.errors import FencedError, SinkRefused
from changefeed.users import PrincipalChanges, Principals, own_users
from sink.mongodb.connection import Client
from sink.mongodb.target_errors import translated
from sink.sink import Permit

_MAJORITY = {"w": "majority"}
_RESTRICTIONS = "authenticationRestrictions"
"""Stored as a list, shown by `rolesInfo` as a list of lists."""
_ROLE_FIELDS = ("privileges", "roles", _RESTRICTIONS)
_ASKED_AT_ONCE = 500
_GONE = (11, 31)
"""UserNotFound, RoleNotFound."""


class TargetPrincipals:
    """Connected for each look: it is seldom, and the credentials are those of now. Asks the permit before each command that writes."""

    def __init__(self, connected: Callable[[], AbstractContextManager[Client]], permit: Permit) -> None:
        self._connected = connected
        self._permit = permit

    def read(self, roles: Iterable[str]) -> Principals:
        """All users, and of these roles those that exist: nobody may list all roles without administering them."""
        with translated("reading the target's users and roles", SinkRefused), self._connected() as client:
            admin = client.get_database("admin", codec_options=STRICT)
            users = {str(user["_id"]): user for user in admin["system.users"].find({})}
            own = own_users(admin.command("connectionStatus"))
            return Principals(users=users, roles=_roles(client, sorted(roles)), own=own)

    def apply(self, changes: PrincipalChanges) -> None:
        with translated("writing the target's users and roles", SinkRefused), self._connected() as client:
            stored = client["admin"].get_collection("system.users", STRICT, write_concern=WriteConcern("majority"))
            for id in changes.new_roles:
                self._write(client, id, {"createRole": _name(id), "privileges": [], "roles": []})
            for role in changes.roles:
                granted = {field: role.get(field, []) for field in _ROLE_FIELDS}
                self._write(client, str(role["_id"]), {"updateRole": role["role"], **granted})
            for user in changes.users:
                self._check_permit()
                stored.replace_one({"_id": user["_id"]}, user, upsert=True)
            self._drop(client, "dropUser", changes.dropped.users)
            self._drop(client, "dropRole", changes.dropped.roles)

    def _drop(self, client: Client, command: str, ids: Iterable[str]) -> None:
        for id in sorted(ids):
            self._write(client, id, {command: _name(id)}, passing=_GONE)

    def _write(self, client: Client, id: str, command: dict[str, Any], *, passing: Iterable[int] = ()) -> None:
        self._check_permit()
        client[_db(id)].command(
            {**command, "writeConcern": _MAJORITY}, codec_options=STRICT, allowable_errors=list(passing)
        )

    def _check_permit(self) -> None:
        if self._permit() <= 0:
            raise FencedError("writing the target's users: this node's session is over")


def _roles(client: Client, ids: list[str]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for first in range(0, len(ids), _ASKED_AT_ONCE):
        asked = [{"role": _name(id), "db": _db(id)} for id in ids[first : first + _ASKED_AT_ONCE]]
        command = {"rolesInfo": asked, "showPrivileges": True, "showAuthenticationRestrictions": True}
        for role in client.admin.command(command)["roles"]:
            groups = role.get(_RESTRICTIONS) or []
            found[f"{role['db']}.{role['role']}"] = {
                **role,
                _RESTRICTIONS: [each for group in groups for each in group],
            }
    return found


def _db(id: str) -> str:
    return id.partition(".")[0]


def _name(id: str) -> str:
    return id.partition(".")[2]
