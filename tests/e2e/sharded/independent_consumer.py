"""`Consumer`: makes tables of a changefeed's messages by what the handbook says of them, without the product's code, and doubts each of them.

A change that no server would have made of what was there before it is an error, unless a copy of its table lacks it. So are two changes with one
position, a transaction of two times, and a sum of the bank that is not whole after all changes of one time.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from bson import json_util
from bson.json_util import JSONOptions

Message = dict[str, Any]

_EXACT: JSONOptions = json_util.CANONICAL_JSON_OPTIONS
_CHANGES = "iuRd"
_DIGITS_OF_A_TIME = 16


@dataclass
class MadeTable:
    name: str
    copying: bool
    """Changes may not fit yet."""
    begun: str
    """Where it was empty. What a copy from before that has read is not of it."""
    rows: dict[Any, Message] = field(default_factory=dict)
    indexes: set[str] = field(default_factory=set)


@dataclass
class Consumer:
    """`whole`: the sum of `balance` of the table of that name, once it has been whole."""

    bank: str
    whole: int
    tables: dict[str, MadeTable] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    added_up: int = 0
    """How often the sum was whole."""
    _times: dict[tuple[str, int], str] = field(default_factory=dict)

    def take(self, messages: Iterable[Message]) -> None:
        """In any order, with repeats."""
        for time, of_time in groupby(_once(messages, self.wrong), key=lambda each: each["pos"][:_DIGITS_OF_A_TIME]):
            for message in of_time:
                self._take(message)
            self._add_up(time)

    @property
    def by_name(self) -> dict[str, MadeTable]:
        return {table.name: table for table in self.tables.values()}

    @property
    def copying(self) -> list[str]:
        return [table.name for table in self.tables.values() if table.copying]

    def _take(self, message: Message) -> None:
        match message["op"], message.get("type"):
            case "b", _:
                indexes = {spec["name"] for spec in message["schema"]["indexes"]} - {"_id_"}
                self.tables[message["id"]] = MadeTable(
                    message["ns"], message.get("copy", False), message["pos"], indexes=indexes
                )
            case "ddl", kind:
                self._ddl(str(kind), message)
            case "c", _:
                if (table := self.tables.get(message["id"])) is not None and message["start"] >= table.begun:
                    table.copying = False
            case _:
                self._row(message)

    def _ddl(self, kind: str, message: Message) -> None:
        if kind == "create":
            self.tables[message["id"]] = MadeTable(message["ns"], copying=False, begun=message["pos"])
            return
        if message["id"] not in self.tables:
            self.wrong.append(f"DDL of an unknown table: {message}")
            return
        table, spec = self.tables[message["id"]], message.get("spec", {})
        match kind:
            case "recopy":
                table.rows, table.copying, table.begun = {}, True, message["pos"]
            case "drop":
                del self.tables[message["id"]]
            case "rename":
                if (message["dropped"] in self.tables) != (
                    message["to"] in self.by_name
                ):  # one that was never copied is not known
                    self.wrong.append(f"rename over {self.by_name.get(message['to'])}: {message}")
                self.tables.pop(message["dropped"] or "", None)
                table.name = message["to"]
            case "createIndexes":
                table.indexes |= {each["name"] for each in spec["indexes"]}
            case "dropIndexes":
                table.indexes -= set(spec["indexes"])

    def _row(self, message: Message) -> None:
        table = self.tables.get(message["id"])
        if message["op"] == "r" and (table is None or message["schema"] < table.begun):
            return
        if table is None or table.name != message["ns"]:
            self.wrong.append(f"its table is {table and table.name}: {message}")
            return
        key, op = message["key"]["_id"], message["op"]
        there = key in table.rows
        if not table.copying and op != "r" and there == (op == "i"):
            self.wrong.append(f"found {table.rows.get(key)}: {message}")
        if op in "iRr":
            table.rows[key] = message["after"]
        elif op == "d":
            table.rows.pop(key, None)
        elif there:
            table.rows[key] = _updated(table.rows[key], message["update"])
        if "txn" in message:
            transaction, time = (message["txn"]["lsid"], message["txn"]["n"]), message["pos"][:_DIGITS_OF_A_TIME]
            if self._times.setdefault(transaction, time) != time:
                self.wrong.append(f"{transaction} has two times: {self._times[transaction]}, {time}")

    def _add_up(self, time: str) -> None:
        table = self.by_name.get(self.bank)
        if table is None or table.copying:
            return
        found = sum(row["balance"] for row in table.rows.values())
        if found == self.whole:
            self.added_up += 1
        elif self.added_up:
            self.wrong.append(f"the bank has {found} after {time}")


def _updated(row: Message, update: Message) -> Message:
    assert not {"truncate", "paths", "upsert"} & update.keys(), update
    changed = {name: value for name, value in row.items() if name not in update.get("unset", ())}
    changed |= update.get("set", {})
    assert not any("." in name for name in (*update.get("set", ()), *update.get("unset", ())))
    return changed


def _once(messages: Iterable[Message], wrong: list[str]) -> Iterator[Message]:
    """In the order of the positions. A repeat is a message that was there before, and no two changes have one position, but for tables that one DDL empties."""
    seen: dict[tuple[str, int, str], Message] = {}
    for message in sorted(messages, key=lambda each: (each["pos"], _rank(each), str(each.get("key")))):
        if message["op"] in _CHANGES or message["op"] == "ddl":
            emptied = message["id"] if message.get("type") == "recopy" else ""
            before = seen.setdefault((message["pos"], _rank(message), emptied), message)
            if before is not message:
                if before != message:
                    wrong.append(f"one position: {before}, {message}")
                continue
        yield message


def _rank(message: Message) -> int:
    """A DDL that empties a table, as it came into its copy, is told of that before itself."""
    if message["op"] == "ddl":
        return 0 if message["type"] == "recopy" else 2
    return {"b": 1, "r": 4, "c": 5}.get(message["op"], 3)


def in_directory(directory: Path) -> Iterator[str]:
    """What commits name, DDL, schemas, and ends of copies."""
    manifests = [json.loads(path.read_text()) for path in directory.glob("log/*/*/*.json")]
    receipts = [file for each in manifests for file in each["files"]]
    receipts += [file for each in manifests for copy in each["copies"] for file in copy["files"]]
    for name in {each["name"] for each in receipts}:
        yield from gzip.decompress((directory / name).read_bytes()).decode().splitlines()
    for folder in ("ddl", "schema", "copied"):
        yield from (path.read_text() for path in directory.glob(f"{folder}/**/*.json"))


def found(lines: Iterable[str], mark: str) -> list[Message]:
    """Everything before the mark. Of the schemas of a table, the first one, if no create begins it."""
    messages = [json_util.loads(line, json_options=_EXACT) for line in lines]
    messages = [each for each in messages if each["op"] in "bciuRdr" or each["op"] == "ddl"]
    created = {each["id"] for each in messages if each.get("type") == "create"}
    first: dict[str, Message] = {}
    for each in messages:
        if each["op"] == "b" and each["pos"] <= first.get(each["id"], each)["pos"]:
            first[each["id"]] = each
    begun = [each for id, each in first.items() if id not in created]
    return [each for each in [*begun, *(it for it in messages if it["op"] != "b")] if each["pos"] < mark]
