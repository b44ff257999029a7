"""`Definitions`: the DDL commands of a simulated target, with their effects and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

from pymongo.errors import AutoReconnect, NotPrimaryError

from changefeed.table import TableName
from tests.simulation.target.server import Build, Collection, TargetServer, failure

COMMANDS = frozenset({"create", "createIndexes", "dropIndexes", "collMod", "drop", "renameCollection"})


class Definitions:
    """The DDL commands of one database."""

    def __init__(self, server: TargetServer, db: str) -> None:
        self._server = server
        self._db = db

    def carry_out(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        server = self._server
        if verb == "renameCollection":
            self._rename(body)
            return {"ok": 1.0}
        name = TableName(self._db, body[verb])
        server.check_taken(verb, name)
        if verb != "create":
            _guard(server.collections.get(name), name, body)
        match verb:
            case "create":
                self._create(name, body)
            case "createIndexes":
                self._create_indexes(name, body["indexes"])
            case "dropIndexes":
                self._drop_index(name, body["index"])
            case "collMod":
                self._modify(name, body)
            case "drop":
                self._drop(name)
            case _:
                raise AssertionError(f"the simulated target does not know {verb}")
        return {"ok": 1.0}

    def _create(self, name: TableName, body: Mapping[str, Any]) -> None:
        collections = self._server.collections
        if name in collections:
            raise failure(48, f"Collection {name} already exists.")
        identity = uuid.UUID(int=self._server.machine.random.getrandbits(128), version=4).bytes
        options = {k: v for k, v in body.items() if k not in ("create", "writeConcern")}
        made = Collection(identity, options)
        made.table = self._server.judged(name, "create", lambda: collections.pop(name))
        collections[name] = made
        thread = self._server.machine.current
        if thread is not None and thread.copies is not None:
            self._server.others(made)

    def _create_indexes(self, name: TableName, specs: list[Mapping[str, Any]]) -> None:
        """Also waits for builds of the same indexes that are already running."""
        collection = self._server.named(name)
        wanted = [_as_kept(spec) for spec in specs]
        for spec in wanted:
            for there in [*collection.indexes.values(), *(build.spec for build in collection.building.values())]:
                _refuse_another(there, spec)
        builds = [self._build(name, collection, spec) for spec in wanted if spec["name"] not in collection.indexes]
        election, machine = self._server.majority.election, self._server.machine
        for build in builds:
            while build.going:
                build.ended.wait(None)
                same_primary(self._server, election)
                if self._server.network.target_down.until > machine.now:
                    raise AutoReconnect("the connection to the target broke")
            if build.error is not None:
                raise build.error

    def _build(self, name: TableName, collection: Collection, spec: dict[str, Any]) -> Build:
        server = self._server
        thread = server.machine.current
        assert thread is not None
        known = collection.building.get(spec["name"])
        if known is not None:
            return known
        build = Build(name, collection, spec, thread, thread.copies)
        collection.building[spec["name"]] = build
        if not collection.rows:
            server.commit_build(build)
            return build
        self._server.note(f"createIndexes {spec['name']} on {name}: begins")
        seconds = server.machine.random.random() * server.slow_builds
        server.machine.after(seconds, partial(server.commit_build, build))
        server.reached("target_builds")
        if server.network.chance(server.network.weather.target_broken_after):
            raise AutoReconnect("the connection to the target broke")
        return build

    def _drop_index(self, name: TableName, index: str) -> None:
        collection = self._server.named(name)
        if index in collection.building:
            self._server.end_build(collection.building[index], failure(276, "Index build failed: aborted"))
            return
        if index == "_id_":
            raise failure(72, "cannot drop _id index")
        if index not in collection.indexes:
            raise failure(27, f"index not found with name [{index}]")
        spec = collection.indexes[index]
        self._server.judged(name, f"dropIndexes {index}", lambda: collection.indexes.update({index: spec}))
        del collection.indexes[index]

    def _modify(self, name: TableName, body: Mapping[str, Any]) -> None:
        collection = self._server.named(name)
        _refuse_while_building(collection)
        before = dict(collection.options)
        changed = {k: v for k, v in body.items() if k not in ("collMod", "collectionUUID", "writeConcern")}
        if any(before.get(k) != v for k, v in changed.items()):

            def undo() -> None:
                collection.options = before

            self._server.judged(name, f"collMod {changed}", undo)
            collection.options = before | {"validationAction": "error"} | changed

    def _drop(self, name: TableName) -> None:
        collections = self._server.collections
        dropped = self._server.named(name)
        for build in list(dropped.building.values()):
            self._server.end_build(build, failure(276, "Index build failed: collection dropped"))
        self._server.judged(name, "drop", lambda: collections.update({name: dropped}))
        del collections[name]

    def _rename(self, body: Mapping[str, Any]) -> None:
        collections = self._server.collections
        name, to = TableName.parse(body["renameCollection"]), TableName.parse(body["to"])
        _guard(collections.get(name), name, body)
        moved, there = self._server.named(name), collections.get(to)
        wanted = body.get("dropTarget", False)
        if isinstance(wanted, bytes) and (there is None or bytes(wanted) != there.uuid):
            raise failure(361, "Collection UUID does not match that specified")
        if there is not None and wanted is False:
            raise failure(48, "target namespace exists")
        for collection in filter(None, (moved, there)):
            _refuse_while_building(collection)
        self._server.check_taken("renameCollection", name, to)

        def undo() -> None:
            collections[name] = collections.pop(to)
            if there is not None:
                collections[to] = there

        self._server.judged(name, f"rename to {to}", undo)
        del collections[name]
        collections[to] = moved


def same_primary(server: TargetServer, election: int) -> None:
    """Raises if the primary of that election is no longer the primary."""
    if election != server.majority.election:
        raise NotPrimaryError("operation was interrupted", {"code": 11602, "errmsg": "operation was interrupted"})


def _as_kept(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The simple collation is dropped: it is the default."""
    return {name: value for name, value in spec.items() if (name, value) != ("collation", {"locale": "simple"})}


def _guard(collection: Collection | None, name: TableName, body: Mapping[str, Any]) -> None:
    """Refuses a collection with another UUID, and a missing one."""
    expected = body.get("collectionUUID")
    if expected is not None and (collection is None or bytes(expected) != collection.uuid):
        raise failure(361, "Collection UUID does not match that specified")


def _refuse_another(there: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    unlike = there["key"] != spec["key"] or there.get("unique", False) != spec.get("unique", False)
    if there["name"] == spec["name"]:
        if unlike:
            raise failure(86, "An existing index has the same name as the requested index.")
    elif not unlike:
        raise failure(85, f"Index already exists with a different name: {there['name']}")


def _refuse_while_building(collection: Collection) -> None:
    if collection.building:
        raise failure(12587, "cannot perform operation: an index build is currently running")
