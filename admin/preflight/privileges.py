"""`Privileges`: what a user may do, what a source and a sink need, and the command that grants what is missing. Pure.

the user sluice@admin may not find in local.oplog.rs; to mend it:
db.getSiblingDB("admin").grantRolesToUser("sluice", [{role: "read", db: "local"}])
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changefeed.capture import Capture
from changefeed.table import TableName

ANYWHERE = ""
"""All databases but `local` and `config`."""
_APART = ("local", "config")
_READING = ("find", "listCollections", "listIndexes")
_WRITING = (
    *("find", "insert", "update", "remove", "createCollection", "dropCollection", "createIndex", "dropIndex"),
    *("collMod", "listCollections", "listIndexes", "bypassDocumentValidation"),
)
"""Rows are written past validators, and a server refuses that even where there is none."""
_GRANTING = ("createRole", "dropRole", "grantRole", "revokeRole", "viewRole", "dropUser")
_ACCESS = ("system.users", "system.roles")
KEEPING = ("find", "insert", "update", "remove")
_FILLING = (*KEEPING, "bypassDocumentValidation")
BUCKETS = "system.buckets."
"""Stands for the buckets of all time series of a database, which are no collections of it for the server's roles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privileges:
    """Without `user` the server has no access control: everything is allowed."""

    user: str | None = None
    user_db: str = "admin"
    granted: Sequence[Mapping[str, Any]] = ()
    """Resources with their actions, as `connectionStatus` shows them."""

    @classmethod
    def of(cls, connection_status: Mapping[str, Any]) -> Privileges:
        authenticated = connection_status["authInfo"]
        users = authenticated.get("authenticatedUsers") or [{}]
        return cls(
            user=users[0].get("user"),
            user_db=users[0].get("db", "admin"),
            granted=tuple(authenticated.get("authenticatedUserPrivileges", ())),
        )

    def lacking(self, actions: Iterable[str], db: str, coll: str = "") -> list[str]:
        """Of the actions, those that the user may not do in the database or the table."""
        if self.user is None:
            return []
        found = {action for each in self.granted if _covers(each["resource"], db, coll) for action in each["actions"]}
        return [] if "anyAction" in found else [action for action in actions if action not in found]

    def lacking_on_the_cluster(self, actions: Iterable[str]) -> list[str]:
        if self.user is None:
            return []
        cluster = (
            each for each in self.granted if each["resource"].get("cluster") or each["resource"].get("anyResource")
        )
        found = {action for each in cluster for action in each["actions"]}
        return [] if "anyAction" in found else [action for action in actions if action not in found]

    def may_look_at(self, table: TableName) -> bool:
        return not self.lacking(["listCollections"], table.db) and not self.lacking(["find"], table.db, table.coll)

    def may_write_somewhere(self) -> bool:
        resources = (each["resource"] for each in self.granted)
        return self.user is None or any(
            not self.lacking(_WRITING, str(resource.get("db", ANYWHERE)), str(resource.get("collection", "")))
            for resource in resources
            if not resource.get("cluster")
        )

    def problem(self, missing: Sequence[str], where: str, *roles: tuple[str, str]) -> str:
        grants = ", ".join(f'{{role: "{role}", db: "{db}"}}' for role, db in roles)
        return (
            f"its user {self.user!r} may not {', '.join(missing)} {where}; grant it with "
            f'db.getSiblingDB("{self.user_db}").grantRolesToUser("{self.user}", [{grants}])'
        )


def missing_at_source(
    privileges: Privileges,
    capture: Capture,
    *,
    databases: Collection[str],
    others: bool,
    sharded: bool,
    users: bool = False,
) -> Iterator[str]:
    """`capture`: the one that is asked for, or the one that was chosen after the oplog had been read.

    `databases`: those that the filter names, and those that the user sees now, whose catalog is read whatever the filter says.

    `others`: the filter may match other databases. Without `listDatabases` a server shows some of them only, so that tables would be
    left out without an error.
    """
    any_read = ("readAnyDatabase", "admin")
    if others and (missing := privileges.lacking_on_the_cluster(["listDatabases"])):
        yield f"source: {privileges.problem(missing, 'on the cluster', any_read)}"
    if capture is Capture.CHANGE_STREAM:
        if missing := privileges.lacking((*_READING, "changeStream"), ANYWHERE):
            yield f"source: {privileges.problem(missing, 'in all databases', any_read)}"
    else:
        for db in sorted(databases):
            if missing := privileges.lacking(_READING, db):
                yield f"source: {privileges.problem(missing, f'in database {db}', ('read', db))}"
    if capture is Capture.OPLOG and (missing := privileges.lacking(["find"], "local", "oplog.rs")):
        yield f"source: {privileges.problem(missing, 'in local.oplog.rs', ('read', 'local'))}"
    if sharded and (missing := privileges.lacking(["find"], "config", "collections")):
        yield f"source: {privileges.problem(missing, 'in config.collections', ('clusterMonitor', 'admin'))}"
    if users and (missing := [one for coll in _ACCESS for one in privileges.lacking(["find"], "admin", coll)][:1]):
        yield f"users: at the source, {privileges.problem(missing, 'in admin.system.users and admin.system.roles', ('backup', 'admin'))}"


def missing_at_sink(
    privileges: Privileges, databases: Collection[str], letters: TableName | None, *, users: bool = False
) -> Iterator[str]:
    for db in sorted(databases):
        if missing := privileges.lacking(_WRITING, db):
            yield f"sink: {privileges.problem(missing, f'in database {db}', ('readWrite', db), ('dbAdmin', db))}"
    if not databases and not privileges.may_write_somewhere():
        yield (
            f"sink: its user {privileges.user!r} may not write in any database; grant it readWrite and dbAdmin on those that the "
            "changefeed will write"
        )
    if letters is not None and (missing := privileges.lacking(KEEPING, letters.db, letters.coll)):
        yield f"dead_letter: {privileges.problem(missing, f'in {letters}', ('readWrite', letters.db))}"
    missing = privileges.lacking(KEEPING, "admin", "system.users") or privileges.lacking(_GRANTING, ANYWHERE)
    if users and missing:
        yield f"users: at the sink, {privileges.problem(missing, 'for admin.system.users', ('restore', 'admin'))}"


def missing_of_buckets(
    source: Privileges, target: Privileges | None, at_source: Iterable[str], at_target: Iterable[str]
) -> Iterator[str]:
    """No role of single databases allows what is in the buckets of time series. `target`: None if it has no users."""
    for db in sorted(at_source):
        if missing := source.lacking(["find"], db, BUCKETS):
            yield f"source: {source.problem(missing, _in_buckets(db), ('readAnyDatabase', 'admin'))}"
    for db in sorted(at_target) if target is not None else ():
        if target is not None and (missing := target.lacking(_FILLING, db, BUCKETS)):
            privilege = f'{{resource: {{db: "{db}", system_buckets: ""}}, actions: [{", ".join(map(repr, _FILLING))}]}}'
            yield (
                f"sink: its user {target.user!r} may not {', '.join(missing)} {_in_buckets(db)}; give a role of it the privilege {privilege} "
                "(db.grantPrivilegesToRole)"
            )


def _in_buckets(db: str) -> str:
    return f"in the buckets of time series in database {db}"


def missing_identity(privileges: Privileges) -> str:
    """What a replica set's user needs so that an update can prove that it names the same deployment. Empty: nothing."""
    missing = privileges.lacking_on_the_cluster(["replSetGetConfig"])
    return privileges.problem(missing, "on the cluster", ("clusterMonitor", "admin")) if missing else ""


def _covers(resource: Mapping[str, Any], db: str, coll: str) -> bool:
    if resource.get("anyResource"):
        return True
    if resource.get("db") == ANYWHERE and db in _APART:
        return False
    if coll == BUCKETS:
        return resource.get("db", db) == db and resource.get("system_buckets") == ""
    return resource.get("db") in (ANYWHERE, db) and resource.get("collection") in ("", coll)
