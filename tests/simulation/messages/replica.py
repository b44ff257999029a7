"""`Replica`: what a consumer makes of the messages of a changefeed, taken in their order: tables with rows, options and indexes. Without the product's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import bson

from tests.independent_file_reader import update_document
from tests.simulation.clockwork.machine import Violation
from tests.simulation.source.row_keys import as_key
from tests.simulation.source.tables import Row


@dataclass
class ReplicaTable:
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    indexes: dict[str, Any] = field(default_factory=dict)
    shard_key: dict[str, Any] | None = None
    rows: dict[Any, Row] = field(default_factory=dict)
    created: bool = False
    """All its documents are in changes. Of another table, a change may come before the copied document that it does not fit."""
    copying: bool = False


class Replica:
    """By table identity. A table that begins to be copied again is empty."""

    def __init__(self) -> None:
        self._tables: dict[str, ReplicaTable] = {}

    @property
    def by_name(self) -> dict[str, ReplicaTable]:
        named: dict[str, ReplicaTable] = {}
        for table in self._tables.values():
            if table.name in named:
                raise Violation(f"W4: two tables are called {table.name}")
            named[table.name] = table
        return named

    def copy_begins(self, table: str) -> None:
        self._of(table).copying = True

    def copied(self, table: str) -> None:
        self._of(table).copying = False

    def take(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "b":
                self._begin(message)
            case "ddl":
                self._change(message)
            case "i" | "u" | "R" | "d" | "r":
                self._row(self._of(message["id"]), message)

    def _of(self, table: str) -> ReplicaTable:
        return self._tables.setdefault(table, ReplicaTable(""))

    def _begin(self, message: dict[str, Any]) -> None:
        schema, table = message["schema"], self._of(message["id"])
        table.name, table.options = message["ns"], dict(schema["options"])
        table.indexes = {spec["name"]: spec for spec in schema["indexes"]}
        table.shard_key = schema["shardKey"]

    def _change(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "dropDatabase":
                for table in message["ids"]:
                    self._tables.pop(table, None)
            case "drop":
                self._tables.pop(message["id"], None)
            case "recopy" if message.get("anew"):
                self._tables.pop(message["id"], None)
            case "recopy":
                self._of(message["id"]).rows.clear()
            case "rename":
                self._tables.pop(message["dropped"] or "", None)
                self._of(message["id"]).name = message["to"]
            case _:
                self._define(self._of(message["id"]), message)

    @staticmethod
    def _define(table: ReplicaTable, message: dict[str, Any]) -> None:
        spec = message["spec"]
        match message["type"]:
            case "create":
                table.name, table.created = message["ns"], True
                table.options = {name: value for name, value in spec.items() if name != "idIndex"}
                table.indexes = {spec["idIndex"]["name"]: spec["idIndex"]}
            case "createIndexes":
                table.indexes |= {index["name"]: index for index in spec["indexes"]}
            case "dropIndexes":
                for index in spec["indexes"]:
                    table.indexes.pop(index, None)
            case "modify":
                table.options |= spec
            case "shard" if table.shard_key == spec["shardKey"]:
                raise Violation(f"the shard key is as before: {message}")
            case "shard":
                table.shard_key = spec["shardKey"]

    @staticmethod
    def _row(table: ReplicaTable, message: dict[str, Any]) -> None:
        key = as_key(_decoded(message["key"])["_id"])
        if message["op"] == "d":
            table.rows.pop(key, None)
        elif "update" not in message:
            table.rows[key] = _decoded(message["after"])
        elif key in table.rows:
            update_document(table.rows[key], message["update"])
        elif table.created and not table.copying:
            raise Violation(f"W1: an update finds no document: {message}")


def _decoded(document: dict[str, Any]) -> Row:
    """With dates as the source has them."""
    return bson.decode(bson.encode(document))
