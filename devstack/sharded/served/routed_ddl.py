"""`RoutedDdl`: what a `mongos` 6.0 does with commands that are not about rows. Each command has a method of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import MAJORITY

_OK: Mapping[str, Any] = {"ok": 1.0}
_NAMESPACE_NOT_FOUND = 26

Command = dict[str, Any]
Reply = Mapping[str, Any]


class RoutedDdl:
    COMMANDS: ClassVar = frozenset(
        [
            "create",
            "drop",
            "dropDatabase",
            "renameCollection",
            "collMod",
            "createIndexes",
            "dropIndexes",
            "enableSharding",
            "shardCollection",
            "refineCollectionShardKey",
            "reshardCollection",
            "split",
            "moveChunk",
            "addShardToZone",
            "updateZoneKeyRange",
            "collStats",
            "dbStats",
            "listDatabases",
            "buildinfo",
            "buildInfo",
            "connectionStatus",
            "getParameter",
        ]
    )

    def __init__(self, router: ClusterRouter) -> None:
        self._router, self._ddl = router, ClusterDdl(router)

    def knows(self, db: str) -> bool:
        return bool(self._router.known_by_config("databases", {"_id": db}))

    def make_database(self, db: str) -> None:
        if not self.knows(db):
            self._router.config({"_configsvrCreateDatabase": db, "writeConcern": MAJORITY})

    def listed(self, db: str, command: Command) -> list[dict[str, Any]]:
        """At the primary shard; the indexes of a sharded collection at the owner of its first chunk."""
        [entry] = self._router.known_by_config("databases", {"_id": db})
        shard, versions = entry["primary"], {"databaseVersion": entry["version"]}
        if "listIndexes" in command:
            ns = f"{db}.{command['listIndexes']}"
            self._router.refresh(ns)
            route = self._router.route(ns)
            if route.collection is not None:
                shard = route.chunks[0]["shard"]
            versions = self._router.versions(ns, shard)
        wire = self._router.wire(shard)
        cursor = wire.command(db, {**command, "cursor": {}, **versions})["cursor"]
        found = list(cursor["firstBatch"])
        name = cursor["ns"].partition(".")[2]
        while cursor["id"]:
            cursor = wire.command(db, {"getMore": cursor["id"], "collection": name})["cursor"]
            found += cursor["nextBatch"]
        return found

    def create(self, db: str, command: Command) -> Reply:
        self.make_database(db)
        ns = f"{db}.{command['create']}"

        def once() -> Reply:
            route = self._router.route(ns)
            primary = str(route.database["primary"])
            return self._router.wire(primary).command(db, {**command, "databaseVersion": route.database["version"]})

        return self._router.patient(ns, once)

    def drop(self, db: str, command: Command) -> Reply:
        if self.knows(db):
            self._coordinated(db, command, "drop", "_shardsvrDropCollection")
            return _OK
        return {"ok": 0.0, "code": _NAMESPACE_NOT_FOUND, "errmsg": "ns not found"}

    def dropDatabase(self, db: str, _: Command) -> Reply:  # noqa: N802 - the command's name, as of the methods below
        if self.knows(db):
            self._ddl.drop_database(db)
        return _OK

    def renameCollection(self, _: str, command: Command) -> Reply:  # noqa: N802
        replaces = command.get("dropTarget", False)
        more = {name: command[name] for name in ("collectionUUID",) if name in command}
        self._ddl.coordinated(
            command["renameCollection"],
            "_shardsvrRenameCollection",
            to=command["to"],
            dropTarget=bool(replaces),
            **more,
        )
        self._router.refresh(command["to"])
        return _OK

    def collMod(self, db: str, command: Command) -> Reply:  # noqa: N802
        self._coordinated(db, command, "collMod", "_shardsvrCollMod")
        return _OK

    def dropIndexes(self, db: str, command: Command) -> Reply:  # noqa: N802
        self._coordinated(db, command, "dropIndexes", "_shardsvrDropIndexes")
        return _OK

    def createIndexes(self, db: str, command: Command) -> Reply:  # noqa: N802
        self.make_database(db)
        ns = f"{db}.{command['createIndexes']}"
        self._router.to_owners(
            ns, lambda shard, versions: self._router.wire(shard).command(db, {**command, **versions})
        )
        return _OK

    def enableSharding(self, _: str, command: Command) -> Reply:  # noqa: N802
        self.make_database(command["enableSharding"])
        return _OK

    def shardCollection(self, _: str, command: Command) -> Reply:  # noqa: N802
        ns = command["shardCollection"]
        self.make_database(ns.partition(".")[0])
        names = ("unique", "numInitialChunks", "presplitHashedZones", "collation")
        self._ddl.shard(ns, command["key"], **{name: command[name] for name in names if name in command})
        return {"collectionsharded": ns, **_OK}

    def refineCollectionShardKey(self, _: str, command: Command) -> Reply:  # noqa: N802
        self._ddl.refine(command["refineCollectionShardKey"], command["key"])
        return _OK

    def reshardCollection(self, _: str, command: Command) -> Reply:  # noqa: N802
        self._ddl.reshard(command["reshardCollection"], command["key"])
        return _OK

    def split(self, _: str, command: Command) -> Reply:
        self._ddl.split_at(command["split"], command["middle"])
        return _OK

    def moveChunk(self, _: str, command: Command) -> Reply:  # noqa: N802
        """By the chunk's bounds only."""
        lower, upper = command["bounds"]
        ns = command["moveChunk"]
        self._router.refresh(ns)
        self._ddl.move_chunk(ns, {"min": lower, "max": upper}, command["to"])
        return _OK

    def addShardToZone(self, _: str, command: Command) -> Reply:  # noqa: N802
        return self._router.config(
            {"_configsvrAddShardToZone": command["addShardToZone"], "zone": command["zone"], "writeConcern": MAJORITY}
        )

    def updateZoneKeyRange(self, _: str, command: Command) -> Reply:  # noqa: N802
        ns = command["updateZoneKeyRange"]
        range = {name: command[name] for name in ("min", "max", "zone")}
        return self._router.config({"_configsvrUpdateZoneKeyRange": ns, **range, "writeConcern": MAJORITY})

    def collStats(self, db: str, command: Command) -> Reply:  # noqa: N802
        ns = f"{db}.{command['collStats']}"
        ask = lambda shard, versions: self._router.wire(shard).command(db, {**command, **versions})  # noqa: E731
        return _sum(self._router.to_owners(ns, ask)) if self.knows(db) else {"count": 0, "size": 0, "ok": 1.0}

    def dbStats(self, db: str, command: Command) -> Reply:  # noqa: N802
        return _sum([self._router.wire(shard).command(db, command) for shard in self._shards()])

    def listDatabases(self, _: str, __: Command) -> Reply:  # noqa: N802
        names = ["admin", "config", *(entry["_id"] for entry in self._router.known_by_config("databases", {}))]
        return {"databases": [{"name": name, "sizeOnDisk": 0, "empty": False} for name in names], "ok": 1.0}

    def buildInfo(self, _: str, command: Command) -> Reply:  # noqa: N802
        return self._router.config(command)

    def buildinfo(self, _: str, command: Command) -> Reply:
        """As drivers write it."""
        return self._router.config(command)

    def connectionStatus(self, _: str, command: Command) -> Reply:  # noqa: N802
        return self._router.config(command)

    def getParameter(self, _: str, command: Command) -> Reply:  # noqa: N802
        return self._router.config(command)

    def _shards(self) -> list[str]:
        return [entry["_id"] for entry in self._router.known_by_config("shards", {})]

    def _coordinated(self, db: str, command: Command, verb: str, internal: str) -> None:
        fields = {name: value for name, value in command.items() if name not in (verb, "writeConcern", "comment")}
        self._ddl.coordinated(f"{db}.{command[verb]}", internal, **fields)


def _sum(replies: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for reply in replies:
        for name, value in reply.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[name] = found.get(name, 0) + value
    return {**found, "ok": 1.0}
