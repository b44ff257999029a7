"""A migration with a way back: the shop moves to another server, works there, and returns; both servers have users, whose writes are blocked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError
from rich.console import Console
from rich.text import Text

from devstack.demo.outcome import DemoFailed
from devstack.etcd.server import EtcdServer
from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security
from devstack.node import Node
from devstack.process import side_by_side, wait_until

_THERE, _BACK, _DATABASE = "move", "move-back", "shop"
_FLAGS = ("--session-ttl", "3", "--spark-master", "local[1]", "--spark-conf", "spark.driver.memory=512m")
_ORDERS, _EXPIRY = 1_500, 3_600
_PATIENCE_SECONDS = 90.0
_ROLES = {"sluice": ["root"], "shop": ["readWriteAnyDatabase", "dbAdminAnyDatabase"]}
"""Each user's name is its password."""


class ThereAndBack:
    def __init__(self, console: Console, node: Node, old: ReplicaSet, new: ReplicaSet) -> None:
        self._console = console
        self._node = node
        self._uris = [members.uri_of("sluice", "sluice") for members in (old, new)]
        self._old, self._new = (MongoClient[Any](members.uri_of("shop", "shop"))[_DATABASE] for members in (old, new))

    def play(self) -> bool:
        self._open_shop()
        source, sink = self._uris
        self._sluice("create", "--id", _THERE, "--source", source, "--sink", sink, "--tables", f"{_DATABASE}.*")
        self._narrate("the shop is copied to the new server, and replicated")
        ready = ("ready", _THERE, "--reverse-as", _BACK, "--block-writes")
        if not wait_until(lambda: self._run(*ready).returncode == 0, _PATIENCE_SECONDS):
            raise DemoFailed(self._run(*ready).stderr)
        self._old["orders"].insert_one({"_id": "the last at the old server"})
        self._sluice("finalize", _THERE, "--reverse-as", _BACK, "--block-writes", "--yes")
        self._blocked(self._old, "old")
        self._narrate("the shop works at the new server: orders, a new table, an index, a rename")
        self._work()
        self._narrate("in doubt, it returns")
        self._sluice("finalize", _BACK, "--block-writes", "--yes")
        self._blocked(self._new, "new")
        self._old["orders"].insert_one({"_id": "the first after the return"})
        self._old["orders"].delete_one({"_id": "the first after the return"})
        return self._identical()

    def _open_shop(self) -> None:
        self._old["customers"].create_index("email", unique=True)
        self._old["customers"].insert_many([{"_id": n, "email": f"c{n}@example.com"} for n in range(200)])
        self._old["orders"].insert_many([{"_id": n, "total": n % 90} for n in range(_ORDERS)])
        self._old["sessions"].create_index("at", expireAfterSeconds=_EXPIRY)
        self._old["sessions"].insert_many([{"_id": n} for n in range(50)])

    def _work(self) -> None:
        shop = self._new
        shop["orders"].insert_many([{"_id": f"new {n}", "total": n} for n in range(500)])
        shop["orders"].update_many({"total": {"$lt": 10}}, {"$set": {"small": True}})
        shop["orders"].delete_many({"total": {"$gt": 80}})
        shop["customers"].update_one({"_id": 1}, {"$set": {"email": "moved@example.com"}})
        shop["customers"].update_one({"_id": 2}, {"$set": {"email": "c1@example.com"}})
        shop["reviews"].insert_many([{"_id": n, "stars": 1 + n % 5} for n in range(40)])
        shop["orders"].create_index("total")
        shop["sessions"].rename("visits")

    def _blocked(self, shop: Any, name: str) -> None:
        try:
            shop["orders"].insert_one({"_id": "not here"})
        except PyMongoError:
            self._narrate(f"a write at the {name} server is refused")
            return
        raise DemoFailed(f"a write at the {name} server was taken")

    def _identical(self) -> bool:
        tables = {
            shop: {name: self._rows(shop[name]) for name in shop.list_collection_names()}
            for shop in (self._old, self._new)
        }
        old, new = tables.values()
        expires = self._old["visits"].index_information()["at_1"]["expireAfterSeconds"]
        identical = old == new and expires == _EXPIRY
        documents = sum(map(len, old.values()))
        told = f"Both servers are identical: {len(old)} tables, {documents:,} documents; expiry is as it was."
        self._console.print(Text(told, "bold green") if identical else Text("The servers differ.", "bold red"))
        return identical

    @staticmethod
    def _rows(table: Any) -> list[Any]:
        return sorted(table.find(), key=lambda row: str(row["_id"]))

    def _narrate(self, text: str) -> None:
        self._console.print(Text.assemble(("  ▸ ", "cyan"), text), soft_wrap=True)

    def _sluice(self, *arguments: str) -> None:
        answer = self._run(*arguments)
        if answer.returncode != 0:
            raise DemoFailed(f"sluice changefeed {' '.join(arguments)}: {answer.stderr}")
        shown = [word for word in arguments if not word.startswith("mongodb://") and word not in ("--source", "--sink")]
        self._console.print(Text(f"    $ sluice changefeed {' '.join(shown)}", "bold"), soft_wrap=True)
        self._console.print(
            Text("".join(f"      {line}\n" for line in answer.stdout.splitlines()[-3:]).rstrip("\n"), "dim")
        )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("sluice")), "changefeed", *arguments]
        environment = {**os.environ, "SLUICE_SERVER": self._node.address}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def run_there_and_back() -> bool:
    console, began = Console(), time.monotonic()
    with ExitStack() as running:
        console.print("Starting etcd, an old server, a new server, and a Sluice node ...")
        directory = Path(tempfile.mkdtemp(prefix="sluice-demo-"))
        running.callback(shutil.rmtree, directory, ignore_errors=True)
        old, new = (
            ReplicaSet(name, directory, directory, size=1, security=Security(directory / f"{name}-security"))
            for name in ("old", "new")
        )
        etcd = EtcdServer(directory / "etcd", directory / "etcd.log")
        for server in (old, new, etcd):
            running.callback(server.stop)
        side_by_side([old.start, new.start, etcd.start])
        for members in (old, new):
            with members.client() as administrator:
                for user, roles in _ROLES.items():
                    administrator.admin.command("createUser", user, pwd=user, roles=roles)
        node = Node("node-1", etcd.endpoint, directory / "node-1", directory / "node-1.log", *_FLAGS)
        running.callback(node.stop)
        node.start()
        identical = ThereAndBack(console, node, old, new).play()
    console.print(f"The demonstration took {time.monotonic() - began:.0f} s.")
    return identical
