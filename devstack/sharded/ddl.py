"""`ClusterDdl`: schema changes and moves of data, each as the internal command that a `mongos` sends for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey

from devstack.process import wait_until
from devstack.sharded.router import ClusterRouter, RowRoute
from devstack.sharded.wire import MAJORITY, CommandFailed

_CHUNK_BYTES = 64 << 20
_BALANCER_INTERRUPTED = 194
_INDEX_NOT_FOUND = 27
_BALANCER_SECONDS = 20.0

Key = Mapping[str, Any]


class ClusterDdl:
    """A collection is named `database.collection`."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def refresh(self, ns: str) -> None:
        """As a router does that hears of a move."""
        self._router.refresh(ns)

    def create_database(self, db: str, *, primary: str) -> None:
        # below featureCompatibilityVersion 6.0 nothing can be sharded without
        command = {"_configsvrCreateDatabase": db, "primaryShardId": primary, "enableSharding": True}
        self._router.config({**command, "writeConcern": MAJORITY})

    def drop_database(self, db: str) -> None:
        self._at_primary(db, {"_shardsvrDropDatabase": 1})
        self._router.refresh()

    def coordinated(self, ns: str, command: str, **fields: Any) -> None:
        """The primary shard of the database leads all that have a part of the collection."""
        db, _, coll = ns.partition(".")
        self._at_primary(db, {command: coll, **fields}, db=db)
        self._router.refresh(ns)

    def shard(self, ns: str, key: Key, **more: Any) -> None:
        self.coordinated(ns, "_shardsvrCreateCollection", shardKey=key, **more)

    def shard_in_zones(self, ns: str, field: str, points: Sequence[Any], shards: Sequence[str]) -> None:
        """Between two points a shard has the rows from the beginning: no chunk moves. The zones do not stay."""
        bounds = [{field: at} for at in (MinKey(), *points, MaxKey())]
        for lower, upper, shard in zip(bounds, bounds[1:], shards, strict=False):
            self.zone(ns, lower, upper, shard)
        try:
            self.shard(ns, {field: 1})
        finally:
            for lower, upper in pairwise(bounds):
                self.unzone(ns, lower, upper)
        self.refresh(ns)

    def drop(self, ns: str) -> None:
        self.coordinated(ns, "_shardsvrDropCollection")

    def rename(self, ns: str, to: str, *, drop_target: bool = False) -> None:
        self.coordinated(ns, "_shardsvrRenameCollection", to=to, dropTarget=drop_target)
        self._router.refresh(to)

    def modify(self, ns: str, **options: Any) -> None:
        if self._since(6):
            self.coordinated(ns, "_shardsvrCollMod", **options)
        else:
            self._at_owners(ns, {"collMod": ns.partition(".")[2], **options})

    def create_index(self, ns: str, key: Key, **options: Any) -> None:
        """Each shard that owns a part builds it for itself."""
        coll = ns.partition(".")[2]
        name = "_".join(f"{path}_{order}" for path, order in key.items())
        self._at_owners(ns, {"createIndexes": coll, "indexes": [{"key": key, "name": name, **options}]})

    def drop_index(self, ns: str, name: str) -> None:
        if self._since(6):
            self.coordinated(ns, "_shardsvrDropIndexes", index=name)
        else:
            self._at_owners(ns, {"dropIndexes": ns.partition(".")[2], "index": name}, done=_INDEX_NOT_FOUND)

    def refine(self, ns: str, key: Key) -> None:
        self.coordinated(ns, "_shardsvrRefineCollectionShardKey", newShardKey=key)

    def reshard(self, ns: str, key: Key, **more: Any) -> None:
        self._at_primary(ns.partition(".")[0], {"_shardsvrReshardCollection": ns, "key": key, **more}, db="admin")
        self._router.refresh(ns)

    def move_primary(self, db: str, to: str) -> None:
        self._at_primary(db, {"_shardsvrMovePrimary": db, "to": to}, db="admin")
        self._router.refresh()

    def split(self, ns: str, *points: Key) -> None:
        """Each point becomes the lower end of a chunk."""
        for point in points:
            self._router.refresh(ns)
            route = self._router.route(ns)
            self._split(ns, route, route.chunk(point), point)
        self._router.refresh(ns)

    def split_at(self, ns: str, bound: Key) -> None:
        """`bound` as chunks have it: of a hashed field, the hash."""
        self._router.refresh(ns)
        route = self._router.route(ns)
        self._split(ns, route, route.chunk_from(bound), bound)
        self._router.refresh(ns)

    def _split(self, ns: str, route: RowRoute, chunk: Mapping[str, Any], point: Key) -> None:
        assert route.collection is not None
        shard = chunk["shard"]
        command = {
            "splitChunk": ns,
            "keyPattern": route.collection["key"],
            "from": shard,
            "min": chunk["min"],
            "max": chunk["max"],
            "splitKeys": [point],
            "epoch": route.collection["lastmodEpoch"],
            "timestamp": route.collection["timestamp"],
            **self._router.versions(ns, shard),
        }
        self._router.wire(shard).command("admin", command)

    def move(self, ns: str, point: Key, to: str, *, wait_for_delete: bool = False) -> None:
        """Moves the chunk that has this point. Afterwards the routes are stale, as those of another router would be."""
        self._router.refresh(ns)
        self.move_chunk(ns, self._router.route(ns).chunk(point), to, wait_for_delete=wait_for_delete)

    def move_chunk(
        self, ns: str, chunk: Mapping[str, Any], to: str, *, wait_for_delete: bool = False, jumbo: bool = False
    ) -> None:
        """`jumbo`: even if it is too large, which stops writes to it longer."""
        collection = self._router.route(ns).collection
        assert collection is not None
        if self._since(6):
            command = {"_configsvrMoveRange": ns, "toShard": to, "min": chunk["min"], "max": chunk["max"]}
            if jumbo:
                command |= {"forceJumbo": 1}
        else:
            command = {
                "_configsvrMoveChunk": 1,
                **chunk,
                "ns": ns,
                "toShard": to,
                "lastmodEpoch": collection["lastmodEpoch"],
                "lastmodTimestamp": collection["timestamp"],
                "maxChunkSizeBytes": Int64(_CHUNK_BYTES),
                "secondaryThrottle": {},
                "forceJumbo": jumbo,
            }
        command |= {"waitForDelete": wait_for_delete, "writeConcern": MAJORITY}
        if not wait_until(lambda: self._is_moved(command), _BALANCER_SECONDS):
            raise TimeoutError(f"the config servers' balancer did not start within {_BALANCER_SECONDS:g} s")

    def _is_moved(self, command: Mapping[str, Any]) -> bool:
        """A config server that has become the primary starts its balancer a moment later."""
        try:
            self._router.config(command)
        except CommandFailed as error:
            if error.code != _BALANCER_INTERRUPTED:
                raise
            return False
        return True

    def zone(self, ns: str, lower: Key, upper: Key, shard: str) -> None:
        """The balancer brings `[lower, upper)` to the shard."""
        self._router.config({"_configsvrAddShardToZone": shard, "zone": shard, "writeConcern": MAJORITY})
        self._zone_of(ns, lower, upper, shard)

    def unzone(self, ns: str, lower: Key, upper: Key) -> None:
        self._zone_of(ns, lower, upper, None)

    def _zone_of(self, ns: str, lower: Key, upper: Key, zone: str | None) -> None:
        range = {"min": lower, "max": upper, "zone": zone}
        self._router.config({"_configsvrUpdateZoneKeyRange": ns, **range, "writeConcern": MAJORITY})

    def _at_owners(self, ns: str, command: Mapping[str, Any], *, done: int = 0) -> None:
        """`done`: the refusal of a shard that has done it already, before another one found the routes stale."""
        db = ns.partition(".")[0]
        shards: set[str] = set()

        def ask(shard: str, versions: Mapping[str, Any]) -> None:
            try:
                self._router.wire(shard).command(db, {**command, **versions, "writeConcern": MAJORITY})
            except CommandFailed as error:
                if error.code != done or shard not in shards:
                    raise
            shards.add(shard)

        self._router.to_owners(ns, ask)

    def _at_primary(self, of: str, command: Mapping[str, Any], *, db: str = "") -> None:
        """The primary shard of a database coordinates what concerns the database."""
        [entry] = self._router.known_by_config("databases", {"_id": of})
        versioned = {**command, "databaseVersion": entry["version"], "writeConcern": MAJORITY}
        self._router.wire(entry["primary"]).command(db or of, versioned)

    def _since(self, major: int) -> bool:
        return self._router.version >= (major, 0)
