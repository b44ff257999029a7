"""`Shop`: the writes and schema changes of a small shop, which the demonstration replicates; `ReplicaSetShop`: on a replica set."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database

from changefeed.cluster_time import ClusterTime
from devstack.mongodb.server import Client

DATABASE = "shop"
CUSTOMERS, PRODUCTS, ORDERS = 200, 80, 1500


@dataclass(frozen=True, slots=True)
class Scene:
    """A change by the shop's developers, with a sentence that describes it."""

    text: str
    before_an_accident: bool = False
    owner_dies: bool = False
    """The owner is to die before it applies it."""


class Shop:
    """What a shop is whatever its source: `ReplicaSetShop`, or on a sharded cluster `ClusterShop`."""

    def __init__(self) -> None:
        self._random = random.Random(7)  # noqa: S311 - any numbers will do
        self._closing = threading.Event()
        self._tills = threading.Thread(target=self._trade, name="shop", daemon=True)
        self._customers: dict[int, int] = {}
        """Whose an order is, where that says on which shard it is."""
        self.writes = 0

    def stock(self) -> None:
        """Inserts the documents that exist before the replication starts."""
        raise NotImplementedError

    def open(self) -> None:
        self._tills.start()

    def close(self) -> None:
        """May be called twice."""
        self._closing.set()
        if self._tills.is_alive():
            self._tills.join()

    def time(self) -> ClusterTime:
        """The source's present time."""
        raise NotImplementedError

    def beside(self, target: Client) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """What the source has and what the target has, by table."""
        raise NotImplementedError

    def scenes(self) -> Iterator[Scene]:
        """Makes each change when its scene is requested; the customers' writes continue meanwhile."""
        raise NotImplementedError

    def _trade(self) -> None:
        raise NotImplementedError


class ReplicaSetShop(Shop):
    def __init__(self, client: Client, *, images: bool = False) -> None:
        """`images`: the source keeps documents as they were before and after a change."""
        super().__init__()
        self._client = client
        self._options: dict[str, Any] = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
        self._shop: Database[dict[str, Any]] = client[DATABASE]

    def stock(self) -> None:
        customers = ({"_id": n, "email": f"c{n}@example.com", "points": 0} for n in range(CUSTOMERS))
        self._table("customers").insert_many(customers)
        self._table("products").insert_many({"_id": n, "price": 100 + n, "stock": 1000} for n in range(PRODUCTS))
        self._table("orders").insert_many(order_of(self._random, n) for n in range(ORDERS))
        self._table("sessions").insert_many({"_id": n, "open": True} for n in range(50))
        self._table("carts").insert_many({"_id": n, "items": [n]} for n in range(30))

    def time(self) -> ClusterTime:
        with self._client.start_session() as session:
            self._client.admin.command("ping", session=session)
            assert session.operation_time is not None
            return ClusterTime.from_bson(session.operation_time)

    def beside(self, target: Client) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """The servers say themselves what a database holds: `dbHash`, and its collections with options and indexes."""
        return _held(self._client), _held(target)

    def scenes(self) -> Iterator[Scene]:
        shop = self._shop
        yield Scene("customers buy, return and change their minds: inserts, updates, deletes, transactions")
        reviews = self._table("reviews", validator={"stars": {"$gte": 1, "$lte": 5}})
        reviews.insert_many({"_id": n, "stars": 1 + n % 5} for n in range(40))
        yield Scene("a new table for reviews, with a validator")
        shop.customers.create_index("email", unique=True)
        yield Scene("no two customers may share an e-mail address: a unique index")
        shop.command("collMod", "orders", validator={"total": {"$gte": 0}})
        yield Scene("an order's total must not be negative: collMod", before_an_accident=True)
        catalog = self._table("catalog_2027")
        catalog.insert_many({"_id": n, "price": 200 + n, "stock": 500} for n in range(PRODUCTS))
        catalog.rename("products", dropTarget=True)
        yield Scene("next year's catalogue replaces the products: rename over an existing table", owner_dies=True)
        shop.sessions.drop()
        yield Scene("sessions have moved elsewhere: drop")
        shop.carts.drop()
        self._table("carts").insert_many({"_id": f"cart-{n}", "lines": [{"sku": n, "n": 1}]} for n in range(25))
        yield Scene("carts get another shape: drop and re-create under the same name")

    def _table(self, name: str, **options: Any) -> Collection[dict[str, Any]]:
        return self._shop.create_collection(name, **options, **self._options)

    def _trade(self) -> None:
        number = ORDERS
        while not self._closing.wait(0.01):
            number += 1
            self._sell(number)
            self._shop.orders.update_one(
                {"_id": number - 5}, {"$push": {"lines": {"sku": 1, "n": 1}}, "$inc": {"total": 1}}
            )
            if number % 3 == 0:
                self._shop.orders.delete_one({"_id": self._random.randrange(number - 100)})
            self.writes += 4

    def _sell(self, number: int) -> None:
        """In a transaction, which a schema change of the same moment may abort: then it is tried again."""
        order = order_of(self._random, number)

        def both(session: ClientSession) -> None:
            self._shop.orders.insert_one(order, session=session)
            self._shop.customers.update_one({"_id": order["customer"]}, {"$inc": {"points": 1}}, session=session)

        with self._client.start_session() as session:
            session.with_transaction(both)


def order_of(chance: random.Random, number: int) -> dict[str, Any]:
    lines = [{"sku": chance.randrange(PRODUCTS), "n": chance.randint(1, 5)}]
    return {"_id": number, "customer": chance.randrange(CUSTOMERS), "total": 10.5, "lines": lines}


def _held(client: Client) -> dict[str, Any]:
    shop = client[DATABASE]
    hashes = shop.command("dbHash")["collections"]
    options = {entry["name"]: entry["options"] for entry in shop.list_collections()}
    return {name: (hashes[name], options[name], shop[name].index_information()) for name in hashes}
