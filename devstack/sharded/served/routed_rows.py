"""`RoutedRows`: reads and writes of rows, divided among the shards by the rules of a `mongos` 6.0.

write                                           goes to
insert                                          the owner of the document
update, delete: the whole shard key in the filter    its owner
upsert without the whole key                    nobody: ShardKeyNotFound
replacement: the whole key in the document      its owner
update or delete of one, `_id` in the filter    all owners, without a version, as a write that cannot be tried again by halves
of one, with neither                            nobody: ShardKeyNotFound
of many                                         all owners, without a version

Statements of an unordered command that go to the same shards go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import takewhile
from operator import itemgetter
from typing import Any

from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from changefeed.documents.bson_order import MISSING, compare
from devstack.sharded.router import STALE, ClusterRouter, RowRoute
from devstack.sharded.wire import CommandFailed

_STATEMENTS = {"insert": "documents", "update": "updates", "delete": "deletes"}
_SHARD_KEY_NOT_FOUND, _NOT_SUPPORTED, _STALE_CONFIG = 61, 115, 13388
_TRANSIENT = "TransientTransactionError"
_TAKEN_OVER = ("writeConcernError", "operationTime", "$clusterTime")
_DIVISIBLE = frozenset({"$match", "$project", "$replaceWith", "$limit", "$set", "$unset", "$addFields"})
_IGNORED = {"e": ObjectId("0" * 8 + "f" * 16), "t": Timestamp(2**32 - 1, 2**32 - 1), "v": Timestamp(0, 0)}
"""The version of a write that a shard applies to what it owns, whatever the router believes."""

Fields = Mapping[str, Any]
Statement = tuple[int, Fields]
"""With its place in the command."""


class RefusedByRouter(Exception):
    def __init__(self, code: int, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.reply = {"ok": 0.0, "code": code, "errmsg": reason, **more}


@dataclass(slots=True)
class RoutedTransaction:
    """`number`: the client's, with its session. The shard of the first command coordinates the commit."""

    number: Fields
    begins: Fields
    shards: list[str] = field(default_factory=list)

    def fields(self, shard: str) -> dict[str, Any]:
        if shard in self.shards:
            return dict(self.number)
        first = {} if self.shards else {"coordinator": True}
        self.shards.append(shard)
        return {**self.number, **self.begins, **first, "startTransaction": True}


class RoutedRows:
    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def write(self, db: str, command: dict[str, Any], transaction: RoutedTransaction | None) -> dict[str, Any]:
        verb = next(iter(command))
        left: list[Statement] = list(enumerate(command.pop(_STATEMENTS[verb])))
        reply: dict[str, Any] = {"n": 0, "ok": 1.0} | ({"nModified": 0} if verb == "update" else {})
        errors: list[dict[str, Any]] = []
        ordered = bool(command.get("ordered", True))
        while left and not (ordered and errors):
            try:
                shards, part = self._next(f"{db}.{command[verb]}", verb, left, ordered=ordered)
            except RefusedByRouter as refused:
                index, _ = left.pop(0)
                errors.append({"index": index, "code": refused.reply["code"], "errmsg": str(refused)})
                continue
            chosen = {index for index, _ in part}
            stale = self._send(db, command, shards, part, reply, errors, transaction)
            left = sorted([*stale, *(each for each in left if each[0] not in chosen)], key=itemgetter(0))
        if errors:
            of_each = {error["index"]: error for error in errors}  # several shards may refuse one statement
            reply["writeErrors"] = [of_each[index] for index in sorted(of_each)]
        return reply

    def _next(
        self, ns: str, verb: str, left: Sequence[Statement], *, ordered: bool
    ) -> tuple[tuple[str, ...], list[Statement]]:
        """The first statement, and others that may go with it to its shards."""

        def once() -> tuple[tuple[str, ...], list[Statement]]:
            route = self._router.route(ns)
            shards = _shards_of(verb, left[0][1], route)
            if ordered and len(shards) > 1:
                return shards, [left[0]]

            def same(each: Statement) -> bool:
                return _goes_to(verb, each[1], route) == shards

            return shards, list(takewhile(same, left) if ordered else filter(same, left))

        return self._router.patient(ns, once)

    def _send(
        self,
        db: str,
        command: Fields,
        shards: tuple[str, ...],
        part: list[Statement],
        reply: dict[str, Any],
        errors: list[dict[str, Any]],
        transaction: RoutedTransaction | None,
    ) -> list[Statement]:
        """Returns the statements that a shard did not take because the routes were stale. A write to several shards is never stale."""
        verb = next(iter(command))
        ns, indexes = f"{db}.{command[verb]}", [index for index, _ in part]
        for shard in shards:
            checked = len(shards) == 1 or transaction is not None
            versions = self._router.versions(ns, shard) if checked else {"shardVersion": _IGNORED}
            own = transaction.fields(shard) if transaction is not None else {}
            sent = {**command, _STATEMENTS[verb]: [statement for _, statement in part], **versions, **own}
            answer = self._router.wire(shard).ask(db, sent)
            failed = {indexes[error["index"]]: error for error in answer.get("writeErrors", ())}
            stale = {index for index, error in failed.items() if error["code"] in STALE}
            if answer.get("ok") != 1 or stale:
                if not stale and answer.get("code") not in STALE:
                    raise CommandFailed(command, answer, answer)
                self._router.refresh(ns)
                if transaction is not None:
                    raise RefusedByRouter(
                        _STALE_CONFIG, "the routes of a transaction were stale", errorLabels=[_TRANSIENT]
                    )
            if answer.get("ok") != 1:
                return part
            reply["n"] += answer["n"]
            if "nModified" in answer:
                reply["nModified"] += answer["nModified"]
            for made in answer.get("upserted", ()):
                reply.setdefault("upserted", []).append({**made, "index": indexes[made["index"]]})
            reply |= {name: answer[name] for name in _TAKEN_OVER if name in answer}
            errors += [{**error, "index": index} for index, error in failed.items() if index not in stale]
            if stale:
                after = min(stale) if command.get("ordered", True) else len(part) + max(indexes)
                return [each for each in part if each[0] in stale or each[0] >= after]
        return []

    def find(self, db: str, command: Fields, transaction: RoutedTransaction | None) -> list[dict[str, Any]]:
        """All rows, in the order that the command asks for."""
        ns, filter = f"{db}.{command['find']}", command.get("filter") or {}
        limit, skip = int(command.get("limit") or 0), int(command.get("skip") or 0)
        sent = {
            name: value for name, value in command.items() if name not in ("limit", "skip", "batchSize", "singleBatch")
        }
        if limit:
            sent["limit"] = limit + skip
        found = self._from_owners(db, ns, sent, filter, transaction)
        if command.get("sort"):
            found.sort(key=cmp_to_key(_in_order(command["sort"])))
        return found[skip : skip + limit] if limit else found[skip:]

    def aggregate(self, db: str, command: Fields, transaction: RoutedTransaction | None) -> list[dict[str, Any]]:
        ns, stages = f"{db}.{command['aggregate']}", command["pipeline"]
        filter = stages[0]["$match"] if stages and "$match" in stages[0] else {}
        route = self._router.patient(ns, lambda: self._router.route(ns))
        if len(self._targets(route, filter)) > 1 and not all(set(stage) <= _DIVISIBLE for stage in stages):
            raise RefusedByRouter(_NOT_SUPPORTED, f"this stand-in for a router does not merge the results of {stages}")
        found = self._from_owners(db, ns, {**command, "cursor": {}}, filter, transaction)
        limits = [int(stage["$limit"]) for stage in stages if "$limit" in stage]
        return found[: min(limits)] if limits else found

    def count(self, db: str, command: Fields) -> dict[str, Any]:
        ns = f"{db}.{command['count']}"
        counted = self._router.to_owners(
            ns, lambda shard, versions: self._router.wire(shard).command(db, {**command, **versions})["n"]
        )
        return {"n": sum(counted), "ok": 1.0}

    def _targets(self, route: RowRoute, filter: Fields) -> tuple[str, ...]:
        owner = _owner(route, filter)
        return (owner,) if owner is not None else tuple(sorted(route.owners))

    def _from_owners(
        self, db: str, ns: str, command: Fields, filter: Fields, transaction: RoutedTransaction | None
    ) -> list[dict[str, Any]]:
        def once() -> list[dict[str, Any]]:
            rows: list[dict[str, Any]] = []
            for shard in self._targets(self._router.route(ns), filter):
                own = transaction.fields(shard) if transaction is not None else {}
                rows += self._all(shard, db, {**command, **self._router.versions(ns, shard), **own}, transaction)
            return rows

        try:
            return once() if transaction is not None else self._router.patient(ns, once)
        except CommandFailed as error:
            if transaction is None or error.code not in STALE:
                raise
            self._router.refresh(ns)
            raise RefusedByRouter(error.code, str(error), errorLabels=[_TRANSIENT]) from error

    def _all(
        self, shard: str, db: str, command: Fields, transaction: RoutedTransaction | None
    ) -> Iterator[dict[str, Any]]:
        wire = self._router.wire(shard)
        cursor = wire.command(db, command)["cursor"]
        yield from cursor["firstBatch"]
        name = cursor["ns"].partition(".")[2]
        while cursor["id"]:
            own = transaction.number if transaction is not None else {}
            cursor = wire.command(db, {"getMore": cursor["id"], "collection": name, **own})["cursor"]
            yield from cursor["nextBatch"]


def _shards_of(verb: str, statement: Fields, route: RowRoute) -> tuple[str, ...]:
    if route.collection is None:
        return (str(route.database["primary"]),)
    if verb == "insert":
        return (route.owner(statement),)
    owner, change = _owner(route, statement["q"]), statement.get("u")
    if owner is not None:
        return (owner,)
    if statement.get("upsert"):
        raise RefusedByRouter(
            _SHARD_KEY_NOT_FOUND, "Failed to target upsert by query :: could not extract exact shard key"
        )
    if isinstance(change, Mapping) and not any(name.startswith("$") for name in change):
        return (route.owner(change),)
    one = not statement.get("multi") if verb == "update" else statement.get("limit") == 1
    if one and _equal(statement["q"], "_id") is MISSING:
        raise RefusedByRouter(
            _SHARD_KEY_NOT_FOUND, f"a {verb} of one document must contain the shard key or an exact match on _id"
        )
    return tuple(sorted(route.owners))


def _owner(route: RowRoute, filter: Fields) -> str | None:
    """The shard of the one shard key that the filter allows; None if it allows several."""
    if route.collection is None:
        return str(route.database["primary"])
    values = {path: _equal(filter, path) for path in route.collection["key"]}
    if any(value is MISSING for value in values.values()):
        return None
    return str(route.chunk_at(values)["shard"])


def _equal(filter: Fields, path: str) -> Any:
    value = filter.get(path, MISSING)
    if isinstance(value, Mapping) and any(name.startswith("$") for name in value):
        return value["$eq"] if set(value) == {"$eq"} else MISSING
    return value


def _in_order(sort: Fields) -> Any:
    def order(one: Fields, other: Fields) -> int:
        for path, way in sort.items():
            if found := compare({"": one.get(path)}, {"": other.get(path)}):
                return found * int(way)
        return 0

    return order


def _goes_to(verb: str, statement: Fields, route: RowRoute) -> tuple[str, ...]:
    """Nowhere, if it is refused."""
    try:
        return _shards_of(verb, statement, route)
    except RefusedByRouter:
        return ()
