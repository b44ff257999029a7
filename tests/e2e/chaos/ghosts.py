"""`Ghosts`: writes that only the source's primary has, and that roll back. The target may never contain them.

The target's oplog shows everything that the target ever contained.
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
        """Creates a table that exists before any ghost."""
        self._source[DATABASE][_PLACE].insert_one({"_id": "alive"})

    def appear(self, primary: MongoDB) -> None:
        """Writes to this member alone: new rows, a new table, and the deletion of a row that all members have."""
        ghost = f"ghost_{next(self._numbers)}"
        with primary.client() as client:
            database = client.get_database(DATABASE, write_concern=_ALONE)
            database[_PLACE].insert_many([{"_id": f"{ghost}_{number}"} for number in range(10)])
            database[_PLACE].delete_one({"_id": "alive"})
            database.create_collection(ghost)
            database[ghost].insert_one({"_id": ghost})

    @staticmethod
    def seen(target: Client) -> list[dict[str, Any]]:
        """Entries of the target's oplog that contain a ghost."""
        ghost = {"$regex": "^ghost_"}
        told = [{"o._id": ghost}, {"o.create": ghost}, {"ns": f"{DATABASE}.{_PLACE}", "op": "d"}]
        return list(target["local"]["oplog.rs"].find({"$or": told}, {"ns": 1, "op": 1, "o": 1}))
