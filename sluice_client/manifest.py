"""`Manifest`: what one commit makes visible, `Receipt`: one file that it names, and the names of all files of a sink. Pure.

    feed.json                              whose directory it is, by put-create
    data/<node epoch>/<attempt>-<n>.<json|bson>[.gz|.zst]    messages of one task; nobody reads them before a manifest names them
    data/db=<db>/table=<coll>/dt=<day>/<node epoch>-<attempt>-<n>...    those of one table and day, with layout=hive
    log/<node epoch>/<group>/<number>.json    Manifest, by put-create: THE commit
    log/<node epoch>/<group>-<time>.json      the manifests of that group, a line each; `-end` if the last one is in it
    ddl/<place>.json, ddl/<place>.<type>.<table>.json
    schema/<place>.<table>.json            a version of a table
    copied/<place>.<table>.json            the copy that began there is complete
    checkpoint/<number>.json               the owner's watermark, a chain of put-creates

A place is a pos, and a table its identity, percent-encoded. What is too long for the name of a file (a resume token has the definition of the table
that its event created, a view is identified by its name) is cut, and ends with its hash. The content says it in full.

    {"v": 1, "feed": "orders", "ranges": [{"from": "..", "to": "..", "ids": ["u1", "u2"]}], "files": [{"name": "data/..", ..}],
     "copies": [{"id": "u1", "start": "..", "after": "101.1", "until": "101.1", "files": [..]}]}

A range says: every message of these tables from `from` to before `to` is in `files`. Files may hold more: what a window read beyond its
end, or what a table has already. A window without rows has no manifest, so ranges need not meet: a watermark says how many manifests there
are, and one that is missing is a gap. Ranges that overlap cost nothing: nodes that wrote the same twice wrote the same messages.

A sealed manifest is the last one of its node (`FileLeftovers`), and says nothing else.

A copy says: `files` have documents of the table, read between two times, for the copy that began at `start`.

A group is 256 numbers. The owner sums up those that are complete (`FileLeftovers`), so that a reader that begins reads few files; the time says up to
where they show anything, so that one that goes on from a watermark leaves out those before. The manifests stay where they are.

`chain` says which part of which manifest shows a table from one position to another. A worked example. Node 1 died after its second commit and before etcd knew of it; node 2 ran the window again, with another end:

    manifest 1    [100, 110)
    manifest 2    [110, 120)
    manifest 3         [115, 130)       from 100 to 125: 1 [100, 110), 2 [110, 120), 3 [120, 125)
    manifest 4                [131, 140)    from 125 to 135: 3 [125, 130), 4 [131, 135); from 130 to 131 there were no rows
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

from sluice_client.cluster_time import ClusterTime
from sluice_client.feed_reader import VERSION
from sluice_client.pos import pos_of, position_of
from sluice_client.position import Position, TableId, Window

IDENTITY = "feed.json"
LOG, DDL, SCHEMA, COPIED, CHECKPOINT, DATA = "log", "ddl", "schema", "copied", "checkpoint", "data"
_DIGITS = 12
GROUP = 256
_END = "-end"
_LONGEST, _KEPT, _HASH = 96, 48, 32
"""A file system takes 255 bytes, of which a store may add some; a bucket 1,024 for the whole path."""


def place_name(at: Position) -> str:
    """As text, it sorts by its time at least."""
    return _short(pos_of(at))


def schema_name(table: TableId, valid_from: Position) -> str:
    """A view is identified by its name, which may contain any character."""
    return f"{SCHEMA}/{place_name(valid_from)}.{_file_text(table)}.json"


def copied_name(table: TableId, start: Position) -> str:
    """Exists once the copy that began there is complete."""
    return f"{COPIED}/{place_name(start)}.{_file_text(table)}.json"


def _file_text(table: TableId) -> str:
    return _short(quote(table, safe=":."))


def _short(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_KEPT]}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH]}"


_HIVE_ESCAPED = re.compile(r"""[\x01-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_DATA_FILE = re.compile(r"\.?(\d+)-[0-9a-f]+-\d+\.")
_LONGEST_HIVE = 240
_FIRST_DAY = date(1970, 1, 1).toordinal()


def data_stem(epoch: int) -> str:
    """How the names of a node's data files begin."""
    return f"{DATA}/{epoch}/"


def hive_stem(epoch: int, db: str, coll: str, day: int) -> str:
    """As `data_stem`, of a table's rows of one day since 1970, where Hive, Spark, DuckDB and pyarrow look for them."""
    dt = date.fromordinal(_FIRST_DAY + day).isoformat()
    return f"{DATA}/db={_hive_text(db)}/table={_hive_text(coll)}/dt={dt}/{epoch}-"


def _hive_text(name: str) -> str:
    """Only what Hive escapes: to Spark an escape is a character, and no byte of one. A name that is cut has four bytes a character at most."""
    escaped = _hive_escaped(name)
    if len(escaped.encode()) <= _LONGEST_HIVE:
        return escaped
    return f"{_hive_escaped(name[:_KEPT])}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH]}"


def _hive_escaped(name: str) -> str:
    return _HIVE_ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", name)


def writer_of(data_file: str) -> str:
    """The epoch of the node that wrote it, or began to; empty if it is nobody's."""
    _, folder, *_, file = (*data_file.split("/"), data_file.rpartition("/")[2])
    found = _DATA_FILE.match(file)
    return folder if folder.isdigit() else found[1] if found else ""


def number_name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"


def number_of(name: str) -> int:
    return int(name.partition(".")[0])


def names_from(at: Position) -> str:
    """Behind which the names stand of all that is at this time or later."""
    return f"{at.ts.to_int():016X}"


def group_folder(epoch: object, group: int) -> str:
    return f"{LOG}/{epoch}/{group:09d}"


def manifest_name(epoch: object, number: int) -> str:
    return f"{group_folder(epoch, number // GROUP)}/{number_name(number)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A durable file of messages. `crc32` is of its bytes as they are stored."""

    name: str
    rows: int
    bytes: int
    crc32: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReceipt:
    """Documents of a table that were read between two times, for the copy that began at `start`."""

    table: TableId
    start: Position
    after: ClusterTime
    until: ClusterTime
    files: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class GroupSum:
    """The sum of a group of manifests, by its name. `until`: nothing that they show is later."""

    group: int
    until: ClusterTime
    ends: bool

    def name(self, epoch: object) -> str:
        return f"{group_folder(epoch, self.group)}-{self.until.to_int():016X}{_END if self.ends else ''}.json"

    @classmethod
    def parse(cls, name: str) -> Self:
        group, _, time = name.removesuffix(".json").partition("-")
        return cls(int(group), ClusterTime.from_int(int(time.removesuffix(_END), 16)), time.endswith(_END))

    @classmethod
    def all_of(cls, names: Iterable[str]) -> dict[int, Self]:
        """`names`: what is in the log of a node."""
        return {found.group: found for found in (cls.parse(name) for name in names if not name.isdigit())}


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

    @property
    def until(self) -> ClusterTime:
        """Nothing that it shows is later."""
        ends = [window.end.ts for window in self.ranges.values()]
        ends += [time for copy in self.copies for time in (copy.until, copy.start.ts)]
        return max(ends, default=ClusterTime(0, 0))

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


class Span(NamedTuple):
    """A file shows messages of a table from `start` to before `end`; all of them at `at` or after it."""

    start: str
    end: str
    at: str = ""


class FileSpans(NamedTuple):
    """What a file shows between two watermarks, by table."""

    file: Receipt
    spans: dict[str, list[Span]]


M = TypeVar("M")


def chain(ranges: Iterable[tuple[Window, M]], start: Position, end: Position) -> Iterator[tuple[Window, M]]:
    """`ranges`: those of a table, in any order."""
    at = start
    for window, manifest in sorted(ranges, key=lambda each: (each[0].start, each[0].end)):
        first, last = max(window.start, at), min(window.end, end)
        if first < last:
            yield Window(first, last), manifest
            at = last
