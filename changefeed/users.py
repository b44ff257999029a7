"""`Principals`: the users and roles of a deployment, and what makes those of a target equal to the source's. Pure.

They are compared as they are now, on both sides: whatever happened in between, and whatever an earlier owner wrote, the next look sees it.

    the source has it, the target has not, or has it otherwise          written
    the source has it not, Sluice has written it once                   dropped
    the source has it not, and neither has Sluice written it            the target's own: it stays
    the user as whom Sluice is connected to either side                 neither written nor dropped

What Sluice has written is recorded before it is written, so that it is never taken for the target's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any, Self

_KEPT = "userId"
"""Of a user: sessions are bound to it, so the target's stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalNames:
    """By their ids, `database.name`."""

    users: AbstractSet[str] = frozenset()
    roles: AbstractSet[str] = frozenset()

    @property
    def count(self) -> int:
        return len(self.users) + len(self.roles)


@dataclass(frozen=True, slots=True, kw_only=True)
class Principals:
    """The stored documents by their ids. `own`: the users that Sluice is connected as."""

    users: Mapping[str, Mapping[str, Any]]
    roles: Mapping[str, Mapping[str, Any]]
    own: AbstractSet[str] = frozenset()

    @property
    def names(self) -> PrincipalNames:
        return PrincipalNames(users=self.users.keys(), roles=self.roles.keys())


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalChanges:
    """`written`: what is to be recorded as written by Sluice, before anything is."""

    written: PrincipalNames = PrincipalNames()
    new_roles: tuple[str, ...] = ()
    roles: tuple[Mapping[str, Any], ...] = ()
    """New ones are created empty first, since they may name each other."""
    users: tuple[Mapping[str, Any], ...] = ()
    dropped: PrincipalNames = field(default_factory=PrincipalNames)

    @classmethod
    def between(cls, source: Principals, target: Principals, written: PrincipalNames) -> Self:
        own = source.own | target.own
        wanted = {id: user for id, user in source.users.items() if id not in own}
        users = [
            _with_id(user, target.users.get(id))
            for id, user in wanted.items()
            if not _same_user(user, target.users.get(id))
        ]
        roles = [role for id, role in source.roles.items() if not same_role(role, target.roles.get(id))]
        dropped = PrincipalNames(
            users=frozenset((written.users & target.users.keys()) - wanted.keys() - own),
            roles=frozenset((written.roles & target.roles.keys()) - source.roles.keys()),
        )
        return cls(
            written=PrincipalNames(
                users=frozenset(wanted.keys() | dropped.users), roles=frozenset(source.roles.keys() | dropped.roles)
            ),
            new_roles=tuple(str(role["_id"]) for role in roles if role["_id"] not in target.roles),
            roles=tuple(roles),
            users=tuple(users),
            dropped=dropped,
        )

    @property
    def any(self) -> bool:
        return bool(self.roles or self.users or self.dropped.count)


def own_users(status: Mapping[str, Any]) -> frozenset[str]:
    """`status`: the answer to `connectionStatus`."""
    return frozenset(f"{user['db']}.{user['user']}" for user in status["authInfo"]["authenticatedUsers"])


def same_role(one: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    """A server lists privileges and actions in an order of its own."""
    return other is not None and _granted(one) == _granted(other)


def _granted(role: Mapping[str, Any]) -> tuple[object, ...]:
    privileges = {(_plain(each["resource"]), frozenset(each["actions"])) for each in role.get("privileges", ())}
    inherited = {(each["db"], each["role"]) for each in role.get("roles", ())}
    restrictions = [
        frozenset((side, tuple(map(_range, addresses))) for side, addresses in each.items())
        for each in role.get("authenticationRestrictions") or ()
    ]
    return frozenset(privileges), frozenset(inherited), tuple(restrictions)


def _range(address: str) -> str:
    """Some versions show a single address as a range of one."""
    return str(ip_network(address, strict=False))


def _same_user(user: Mapping[str, Any], other: Mapping[str, Any] | None) -> bool:
    return other is not None and _without_id(user) == _without_id(other)


def _without_id(user: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in user.items() if name != _KEPT}


def _with_id(user: Mapping[str, Any], other: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return user if other is None or _KEPT not in other else {**user, _KEPT: other[_KEPT]}


def _plain(value: object) -> object:
    """Hashable, and without the order of fields."""
    if isinstance(value, Mapping):
        return frozenset((name, _plain(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    return value
