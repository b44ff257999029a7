"""`ClusterShop`: the shop on a sharded cluster: orders and customers are on two shards, move between them, and are written together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from changefeed.cluster_time import ClusterTime
from devstack.demo.shop import CUSTOMERS, DATABASE, ORDERS, PRODUCTS, Scene, Shop, order_of
from devstack.mongodb.server import Client
from devstack.process import ServerFailed
from devstack.sharded.cluster import ShardedCluster
from devstack.sharded.ddl import ClusterDdl
from devstack.sharded.router import ClusterRouter
from devstack.sharded.wire import CommandFailed

_ORDERS, _CUSTOMERS, _PRODUCTS, _CATALOG, _SESSIONS, _CARTS, _REVIEWS = (
    f"{DATABASE}.{name}" for name in ("orders", "customers", "products", "catalog_2027", "sessions", "carts", "reviews")
)
_MIDDLE = CUSTOMERS // 2


class ClusterShop(Shop):
    def __init__(self, cluster: ShardedCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def stock(self) -> None:
        with self._cluster.router() as router:
            ddl = ClusterDdl(router)
            ddl.create_database(DATABASE, primary="sa")
            for ns, field in ((_ORDERS, "customer"), (_CUSTOMERS, "_id")):
                ddl.shard(ns, {field: 1})
                ddl.split(ns, {field: _MIDDLE})
                ddl.move(ns, {field: _MIDDLE}, "sb")
            for number in range(CUSTOMERS):
                router.insert(_CUSTOMERS, {"_id": number, "email": f"c{number}@example.com", "points": 0})
            for number in range(ORDERS // 5):
                router.insert(_ORDERS, self._remember(order_of(self._random, number)))
            for number in range(PRODUCTS):
                router.insert(_PRODUCTS, {"_id": number, "price": 100 + number, "stock": 1000})
            for number in range(30):
                router.insert(_SESSIONS, {"_id": number, "open": True})
                router.insert(_CARTS, {"_id": number, "items": [number]})

    def time(self) -> ClusterTime:
        """That of its latest write."""
        newest = []
        for each in (self._cluster.config, *self._cluster.shards.values()):
            with each.client() as client:
                newest.append(client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"])
        return ClusterTime.from_bson(max(newest))

    def beside(self, target: Client) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The documents that the shards own."""
        names = [ns.partition(".")[2] for ns in (_ORDERS, _CUSTOMERS, _PRODUCTS, _CARTS, _REVIEWS)]
        with self._cluster.router() as router:
            owned = {name: {row["_id"]: row for row in router.rows(f"{DATABASE}.{name}")} for name in names}
        there = target[DATABASE].list_collection_names(filter={"name": {"$not": {"$regex": r"^system\."}}})
        return owned, {name: {row["_id"]: row for row in target[DATABASE][name].find()} for name in there}

    def scenes(self) -> Iterator[Scene]:
        with self._cluster.router() as router:
            ddl = ClusterDdl(router)
            yield Scene("customers buy and move: transactions across shards, and documents that change their shard")
            ddl.shard(_REVIEWS, {"_id": 1})
            for number in range(40):
                router.insert(_REVIEWS, {"_id": number, "stars": 1 + number % 5})
            yield Scene("a new table for reviews, sharded by its _id")
            ddl.create_index(_CUSTOMERS, {"email": 1})
            yield Scene("customers are looked for by their e-mail address: an index, which each shard builds by itself")
            ddl.move(_ORDERS, {"customer": 0}, "sb")
            yield Scene("the orders of half of the customers move to the other shard: copied there, and told to nobody")
            ddl.modify(_ORDERS, validator={"total": {"$gte": 0}})
            yield Scene("an order's total must not be negative: collMod", before_an_accident=True)
            for number in range(PRODUCTS):
                router.insert(_CATALOG, {"_id": number, "price": 200 + number, "stock": 500})
            ddl.rename(_CATALOG, _PRODUCTS, drop_target=True)
            yield Scene("next year's catalogue replaces the products: rename over an existing table", owner_dies=True)
            ddl.drop(_SESSIONS)
            yield Scene("sessions have moved elsewhere: drop")
            ddl.reshard(_ORDERS, {"_id": 1}, numInitialChunks=2)
            yield Scene("orders are sharded by their number: reshardCollection, which gives each document anew")
            ddl.drop(_CARTS)
            for number in range(25):
                router.insert(_CARTS, {"_id": f"cart-{number}", "lines": [{"sku": number, "n": 1}]})
            yield Scene("carts get another shape: drop and re-create under the same name")

    def _remember(self, order: dict[str, Any]) -> dict[str, Any]:
        self._customers[order["_id"]] = order["customer"]
        return order

    def _trade(self) -> None:
        number = ORDERS
        with self._cluster.router() as router:
            while not self._closing.wait(0.02):
                number += 1
                try:
                    self._sell_across(router, self._remember(order_of(self._random, number)))
                    self.writes += 3
                except (CommandFailed, LookupError, OSError, ServerFailed):
                    self._customers.pop(number, None)
                    router.refresh()  # a schema change of the same moment: the next customer finds the shop as it is now

    def _sell_across(self, router: ClusterRouter, order: dict[str, Any]) -> None:
        """An order, its customer's points, and now and then an order that goes to another customer, whose shard is another one."""
        moved = self._random.choice(sorted(self._customers)) if order["_id"] % 3 == 0 else order["_id"]
        customer = self._random.randrange(CUSTOMERS)
        transaction = router.transaction()
        router.route(_ORDERS)
        try:
            transaction.insert(_ORDERS, order)
            transaction.update(_CUSTOMERS, {"_id": order["customer"]}, {"$inc": {"points": 1}})
            if moved != order["_id"]:
                found = transaction.take_out(_ORDERS, {"_id": moved, "customer": self._customers[moved]})
                if found is not None:
                    transaction.insert(_ORDERS, {**found, "customer": customer})
            transaction.commit()
        except (CommandFailed, LookupError):
            list(transaction.abort())
            raise
        self._customers |= {moved: customer} if moved != order["_id"] else {}
