"""`Manifest`: what one commit makes visible, and the names of the files of a sink. Pure.

    feed.json                              whose directory it is, by put-create
    data/<node epoch>/<attempt>-<n>.<json|bson>[.gz|.zst]    messages of one task; nobody reads them before a manifest names them
    log/<node epoch>/<number>.json         Manifest, by put-create: THE commit
    ddl/<place>.json, ddl/<place>.recopy.<table>.json
    schema/<table>/<place>.json            a version of a table
    copied/<table>/<place>.json            the copy that began there is complete
    checkpoint/<number>.json               the owner's watermark, a chain of put-creates

A place is a pos, and a table its identity, percent-encoded. What is too long for the name of a file (a resume token has the definition of the table
that its event created, a view is identified by its name) is cut, and ends with its hash. The content says it in full.

    {"v": 1, "feed": "orders", "ranges": [{"from": "..", "to": "..", "ids": ["u1", "u2"]}], "files": [{"name": "data/..", ..}],
     "copies": [{"id": "u1", "start": "..", "after": "101.1", "until": "101.1", "files": [..]}]}

A range says: every message of these tables from `from` to before `to` is in `files`. Files may hold more: what a window read beyond its
end, or what a table has already. A reader follows each table from range to range; ranges that do not meet are a gap. Ranges that
overlap cost nothing: nodes that wrote the same twice wrote the same messages.

A sealed manifest is the last one of its node (`FileLeftovers`), and says nothing else.

A copy says: `files` have documents of the table, read between two times, for the copy that began at `start`.

`chain` says which part of which manifest shows a table from one position to another, without a gap. A worked example. Node 1 died after its second commit and before etcd knew of it; node 2 ran the window again, with another end:

    manifest 1    [100, 110)
    manifest 2    [110, 120)
    manifest 3         [115, 130)       from 100 to 125: 1 [100, 110), 2 [110, 120), 3 [120, 125)
    manifest 4                [131, 140)    from 125 to 135: a gap, nothing holds 130 to 131
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar
from urllib.parse import quote

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position, Window
from changefeed.table import TableId
from sink.messages.feed_reader import MessageGap
from sink.messages.message_key import pos_of, position_of
from sink.receipt import CopyReceipt, Receipt

VERSION = 1
IDENTITY = "feed.json"
LOG, DDL, SCHEMA, COPIED, CHECKPOINT, DATA = "log", "ddl", "schema", "copied", "checkpoint", "data"
_DIGITS = 12
_LONGEST, _KEPT, _HASH = 96, 48, 32
"""A file system takes 255 bytes, of which a store may add some; a bucket 1,024 for the whole path."""


def place_name(at: Position) -> str:
    """As text, it sorts by its time at least."""
    return _short(pos_of(at))


def schema_name(table: TableId, valid_from: Position) -> str:
    """A view is identified by its name, which may contain any character."""
    return f"{SCHEMA}/{_folder(table)}/{place_name(valid_from)}.json"


def copied_name(table: TableId, start: Position) -> str:
    """Exists once the copy that began there is complete."""
    return f"{COPIED}/{_folder(table)}/{place_name(start)}.json"


def _folder(table: TableId) -> str:
    return _short(quote(table, safe=":."))


def _short(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_KEPT]}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH]}"


def number_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"


def number_of(name: str) -> int:
    return int(name.partition(".")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    feed: str
    ranges: Mapping[TableId, Window]
    files: tuple[Receipt, ...] = ()
    copies: tuple[CopyReceipt, ...] = ()
    sealed: bool = False
    """The last one of its node: it is gone."""

    @property
    def all_files(self) -> Iterator[Receipt]:
        yield from self.files
        for copy in self.copies:
            yield from copy.files

    def json(self) -> bytes:
        grouped: dict[tuple[str, str], list[TableId]] = defaultdict(list)
        for table, window in sorted(self.ranges.items()):
            grouped[pos_of(window.start), pos_of(window.end)].append(table)
        ranges = [{"from": start, "to": end, "ids": ids} for (start, end), ids in grouped.items()]
        fields = {"v": VERSION, "feed": self.feed, "ranges": ranges, "files": _files(self.files)}
        copies = [
            {
                "id": copy.table,
                "start": pos_of(copy.start),
                "after": str(copy.after),
                "until": str(copy.until),
                "files": _files(copy.files),
            }
            for copy in self.copies
        ]
        sealed = {"sealed": True} if self.sealed else {}
        return json.dumps(fields | {"copies": copies} | sealed).encode()

    @classmethod
    def parse(cls, content: bytes) -> Self:
        fields: dict[str, Any] = json.loads(content)
        return cls(
            feed=fields["feed"],
            ranges={
                TableId(table): Window(position_of(each["from"]), position_of(each["to"]))
                for each in fields["ranges"]
                for table in each["ids"]
            },
            files=_parsed(fields["files"]),
            copies=tuple(
                CopyReceipt(
                    table=TableId(each["id"]),
                    start=position_of(each["start"]),
                    after=ClusterTime.parse(each["after"]),
                    until=ClusterTime.parse(each["until"]),
                    files=_parsed(each["files"]),
                )
                for each in fields["copies"]
            ),
            sealed=fields.get("sealed", False),
        )


def _files(files: Iterable[Receipt]) -> list[dict[str, Any]]:
    return [asdict(file) for file in files]


def _parsed(files: Iterable[dict[str, Any]]) -> tuple[Receipt, ...]:
    return tuple(Receipt(**file) for file in files)


M = TypeVar("M")


def chain(
    table: str, ranges: Iterable[tuple[Window, M]], start: Position, end: Position, *, whole: bool = True
) -> list[tuple[Window, M]]:
    """`ranges`: those of the table, in any order. Not `whole`: as far as they meet."""
    found: list[tuple[Window, M]] = []
    at = start
    for window, manifest in sorted(ranges, key=lambda each: (each[0].start, each[0].end)):
        if window.end <= at or at >= end:
            continue
        if window.start > at:
            break
        reached = min(window.end, end)
        found.append((Window(at, reached), manifest))
        at = reached
    if whole and at < end:
        raise MessageGap(
            f"table {table}: expected its messages from {at} on, up to {end}, found none in any manifest; files of the directory are "
            f"missing, or a node could not see what another one wrote: restore the files, or create the changefeed again"
        )
    return found
