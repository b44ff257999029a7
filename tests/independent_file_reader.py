"""What the source holds, rebuilt from a directory of Parquet files without the product's code: pyarrow reads the rows, and PyMongo the documents."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import bson
import pyarrow.parquet as pq
from bson.codec_options import CodecOptions, DatetimeConversion

_CODEC: CodecOptions[dict[str, Any]] = CodecOptions(dict, datetime_conversion=DatetimeConversion.DATETIME_MS)
_COLUMNS = ["pos", "op", "id", "key_bson", "after_bson", "update_bson"]


class Step(NamedTuple):
    """In the order of the source: at one place a DDL comes before rows, and changes before what a copy shows."""

    pos: str
    rank: int
    table: str
    row: Mapping[str, Any]


def rebuilt(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The documents of each collection at the newest watermark, by the name that it has there."""
    mark = max(_json(path)["pos"] for path in directory.glob("checkpoint/*.json"))
    manifests = [_json(path) for path in directory.glob("log/*/*/*.json")]
    names = {table: message["ns"] for table, message in _first_versions(directory)}
    documents: defaultdict[str, dict[bytes, dict[str, Any]]] = defaultdict(dict)
    copied_until: dict[str, str] = defaultdict(str)
    for manifest in manifests:
        for copy in manifest["copies"]:
            copied_until[copy["id"]] = max(copied_until[copy["id"]], _after(copy["until"]))
    ddls = [Step(ddl["pos"], 0, "", ddl) for ddl in map(_json, directory.glob("ddl/*.json"))]
    rows = {(step.pos, step.rank, step.table, step.row["key_bson"]): step for step in _rows(directory, manifests)}
    for step in sorted((*ddls, *rows.values()), key=lambda each: each[:3]):
        if step.pos >= mark:
            break
        if step.rank == 0:
            _do(step.row, names, documents)
        elif step.table in names:
            _change(step, documents[step.table], copying=step.pos <= copied_until[step.table])
    return {names[table]: list(found.values()) for table, found in documents.items() if table in names}


def _rows(directory: Path, manifests: list[dict[str, Any]]) -> Iterator[Step]:
    """What ranges and copies say; files may hold more."""
    for manifest in manifests:
        spans = {table: (range["from"], range["to"]) for range in manifest["ranges"] for table in range["ids"]}
        for file in manifest["files"]:
            for row in pq.read_table(directory / file["name"], columns=_COLUMNS).to_pylist():
                start, end = spans.get(row["id"], ("", ""))
                if start <= row["pos"] < end:
                    yield Step(row["pos"], 1, row["id"], row)
        for copy in manifest["copies"]:
            for file in copy["files"]:
                for row in pq.read_table(directory / file["name"], columns=_COLUMNS).to_pylist():
                    yield Step(max(row["pos"], copy["start"]), 2, row["id"], row)


def _first_versions(directory: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    found: dict[str, dict[str, Any]] = {}
    for version in map(_json, sorted(directory.glob("schema/*.json"))):
        found.setdefault(version["id"], version)
    yield from found.items()


def _do(ddl: Mapping[str, Any], names: dict[str, str], documents: dict[str, dict[bytes, dict[str, Any]]]) -> None:
    match ddl["type"]:
        case "create":
            names[ddl["id"]] = ddl["ns"]
        case "rename":
            names[ddl["id"]] = ddl["to"]
            names.pop(ddl["dropped"], None)
        case "drop":
            names.pop(ddl["id"], None)
        case "dropDatabase":
            for table in ddl["ids"]:
                names.pop(table, None)
        case "recopy":
            names[ddl["id"]] = ddl["ns"]
            documents[ddl["id"]].clear()


def _change(step: Step, documents: dict[bytes, dict[str, Any]], *, copying: bool) -> None:
    row, key = step.row, step.row["key_bson"]
    if row["op"] == "d":
        documents.pop(key, None)
    elif row["after_bson"] is not None:
        documents[key] = bson.decode(row["after_bson"], _CODEC)
    else:
        update = bson.decode(row["update_bson"], _CODEC)
        if key not in documents and update.get("upsert"):
            documents[key] = bson.decode(key, _CODEC)
        if key in documents:
            update_document(documents[key], update)
        else:
            assert copying, f"{step} has no document"


def update_document(document: dict[str, Any], update: dict[str, Any]) -> None:
    paths = update.get("paths", {})
    for each in update.get("truncate", ()):
        holder, name = _place(document, paths.get(each["field"], each["field"].split(".")))
        del holder[name][each["size"] :]
    for path in [*update.get("unset", ()), *update.get("append", ())]:
        holder, name = _place(document, paths.get(path, path.split(".")))
        holder.pop(name, None)
    for path, value in update.get("set", {}).items():
        holder, name = _place(document, paths.get(path, path.split(".")))
        if isinstance(holder, list):
            holder.extend([None] * (name + 1 - len(holder)))
        holder[name] = value


def _place(document: Any, path: list[Any]) -> tuple[Any, Any]:
    *way, last = path
    for part in way:
        document = document[int(part)] if isinstance(document, list) else document.setdefault(str(part), {})
    return (document, int(last)) if isinstance(document, list) else (document, str(last))


def _after(time: str) -> str:
    """Behind every `pos` of this cluster time."""
    seconds, increment = map(int, time.split("."))
    return f"{(seconds << 32) + increment:016X}.FF"


def _json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found
