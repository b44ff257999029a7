"""`Accidents`: what happens to nodes, shards and config servers while a history runs. Everything comes back with its data."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence

from devstack.mongodb.replica_set import ReplicaSet
from devstack.process import wait_until
from devstack.sharded.cluster import ShardedCluster
from tests.component.node.server_process import Server

_WITHHELD = "hangBeforeWritingDecision"
_PREPARED_WITHIN_SECONDS = 10


class Accidents:
    """`met` counts those that happened, by kind."""

    def __init__(self, cluster: ShardedCluster, nodes: Sequence[Server], chance: random.Random) -> None:
        self.met: Counter[str] = Counter()
        self._cluster, self._nodes, self._chance = cluster, nodes, chance

    def happen(self) -> None:
        kinds: list[Callable[[], str]] = [self._kill_node] * 2
        kinds += [self._kill_shard, self._freeze_shard, self._step_down, self._kill_config, self._kill_coordinator]
        self.met[self._chance.choice(kinds)()] += 1

    def end(self) -> None:
        """Everything runs again."""
        for each in [self._cluster.config, *self._cluster.shards.values()]:
            self._mended(each)
        for node in self._nodes:
            node.until_ready()

    def _kill_node(self) -> str:
        ready = next(each for each in self._nodes if each.get("/readyz")[0] == 200)
        nodes = json.loads(ready.sluice("node", "list", "-o", "json").stdout)
        owners = [node["name"] for node in nodes if node["owner"]]
        number = self._chance.randrange(len(self._nodes))
        killed = self._nodes[number]
        killed.kill()
        time.sleep(self._chance.uniform(0, 4))
        killed.start()
        for each in self._nodes:
            each.until_ready()
        return "owner killed" if f"n{number + 1}" in owners else "node killed"

    def _kill_shard(self) -> str:
        self._kill_primary(self._any_shard())
        return "shard's primary killed"

    def _kill_config(self) -> str:
        self._kill_primary(self._cluster.config)
        return "config server killed"

    def _freeze_shard(self) -> str:
        shard = self._any_shard()
        member = shard.primary()
        member.pause()
        time.sleep(self._chance.uniform(1, 6))
        member.resume()
        self._mended(shard)
        return "shard's primary frozen"

    def _step_down(self) -> str:
        shard = self._any_shard()
        alone = len(shard.members) == 1
        shard.step_down(2, force=alone)
        self._mended(shard)
        return "shard's primary stepped down"

    def _kill_coordinator(self) -> str:
        """Between the prepares and the decision of a transaction across shards, if one comes."""
        shard = self._any_shard()
        coordinator = shard.primary()
        with coordinator.client() as client:
            client.admin.command("configureFailPoint", _WITHHELD, mode="alwaysOn")
            withheld = wait_until(
                lambda: client["config"]["transactions"].find_one({"state": "prepared"}) is not None,
                _PREPARED_WITHIN_SECONDS,
            )
        coordinator.kill()
        time.sleep(self._chance.uniform(0, 2))
        coordinator.start()
        self._mended(shard)
        return "coordinator killed before its decision" if withheld else "shard's primary killed"

    def _kill_primary(self, of: ReplicaSet) -> None:
        member = of.primary()
        member.kill()
        time.sleep(self._chance.uniform(0, 4))
        member.start()
        self._mended(of)

    def _any_shard(self) -> ReplicaSet:
        return self._chance.choice([self._cluster.shards[name] for name in sorted(self._cluster.shards)])

    @staticmethod
    def _mended(each: ReplicaSet) -> None:
        for member in each.members:
            if not member.running:
                member.start()
        each.wait_until_whole()
