"""`Ghosts`: what is written at the source's primary alone, and rolls back. Nobody downstream may ever see it.

The target's oplog remembers all that the target ever had.
"""

from __future__ import annotations

import itertools
from typing import Any

from pymongo import WriteConcern

from devstack.mongodb.server import Client, MongoDB

DATABASE = "chaos_ghosts"
_PLACE = "place"
_ALONE = WriteConcern(1)


class Ghosts:
    def __init__(self, source: Client) -> None:
        self._source = source
        self._numbers = itertools.count()

    def prepare(self) -> None:
        """A table that is there before any of them."""
        self._source[DATABASE][_PLACE].insert_one({"_id": "alive"})

    def appear(self, primary: MongoDB) -> None:
        """Rows and a table that only this member takes, and the loss of a row that all have."""
        ghost = f"ghost_{next(self._numbers)}"
        with primary.client() as client:
            database = client.get_database(DATABASE, write_concern=_ALONE)
            database[_PLACE].insert_many([{"_id": f"{ghost}_{number}"} for number in range(10)])
            database[_PLACE].delete_one({"_id": "alive"})
            database.create_collection(ghost)
            database[ghost].insert_one({"_id": ghost})

    @staticmethod
    def seen(target: Client) -> list[dict[str, Any]]:
        """Entries of the target's oplog that tell of a ghost."""
        ghost = {"$regex": "^ghost_"}
        told = [{"o._id": ghost}, {"o.create": ghost}, {"ns": f"{DATABASE}.{_PLACE}", "op": "d"}]
        return list(target["local"]["oplog.rs"].find({"$or": told}, {"ns": 1, "op": 1, "o": 1}))
