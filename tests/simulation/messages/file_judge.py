"""`FileJudge`: judges a changefeed into a sink of files: what each file says when it is made, and what a reader makes of all of them.

I1 gate             a commit has no row from behind a DDL that is not done; a DDL is written when its tables are committed up to it
I2 nothing lost     a commit has every change of its ranges, and nothing else; a checkpoint is covered by commits
W1 to W4            by `tests/e2e/node/event_judge.py`, of what a reader shows that follows the watermarks while the changefeed runs. What it has shown
                    does not come again, so it sees what comes too late
I6 converge         tables that are made of what it shows are equal to those of the source
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sink.events.pos import position_of
from sink.files.reading.feed_directory import FeedDirectory
from sink.files.reading.reader import Reader
from sink.reading.shown import Copied, CopyBegins
from tests.e2e.node.event_judge import promises
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import Agreement, definition_differences
from tests.simulation.judgement.judge import Judge
from tests.simulation.messages.replica import Replica
from tests.simulation.source.oplog import placed
from tests.simulation.source.server import SourceServer
from tests.simulation.source.tables import Table
from tests.simulation.target.server import Collection

_FOLLOWS = 0.3
"""The part of the watermarks after which the reader looks."""
_CHANGES = "iuRd"
_JSON_BEGINS = b'{"v"'
"""A document of BSON may begin with the first sign."""
_FIRST = Position(ClusterTime(0, 0))
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)

Fields = dict[str, Any]


class FileJudge(Judge):
    def __init__(self, cluster: Cluster, agreement: Agreement) -> None:
        super().__init__(cluster, agreement)
        self._store = cluster.store
        self._store.created = self._created
        self._covered: dict[TableId, list[tuple[Position, Position]]] = {}
        """The ranges that are committed, by life."""
        self._emptied: dict[TableId, Position] = {}
        """Where the copy of a table has begun again: what was before does not matter."""
        self._copied_until = ClusterTime(0, 0)
        """A watermark of that time does not show all that was copied."""
        self._looks = Random(f"looks of the reader {cluster.machine.seed}")
        self._reader = Reader(FeedDirectory(cluster.store))
        self._replica = Replica()
        self._shown: list[Fields] = []
        self._marks: list[str] = []
        self._last_mark: Fields | None = None

    # what is written

    def _created(self, name: str, content: bytes) -> None:
        folder = name.partition("/")[0]
        self._count(f"store: file in {folder}")
        match folder:
            case "log":
                self._committed(json.loads(content))
            case "ddl":
                self._ddl_written(_fields(content))
            case "checkpoint":
                self._marked(json.loads(content))

    def _committed(self, manifest: Fields) -> None:
        rows = [fields for file in manifest["files"] for fields in self._messages(file)]
        for copy in manifest["copies"]:
            starts = position_of(copy["start"]).ts
            self._copied_until = max(self._copied_until, starts, ClusterTime.parse(copy["until"]))
            for file in copy["files"]:
                self._count("store: copied documents committed", len(list(self._messages(file))))
        for span in manifest["ranges"]:
            start, end = (placed(position_of(span[end])) for end in ("from", "to"))
            for life in map(TableId, span["ids"]):
                self._check_range(life, start, end, [fields for fields in rows if fields["id"] == life])
                self._covered.setdefault(life, []).append((start, end))

    def _messages(self, file: Fields) -> Iterator[Fields]:
        stored = self._store.files.get(file["name"])
        if stored is None or len(stored) != file["bytes"] or zlib.crc32(stored) != file["crc32"]:
            raise Violation(f"I3: {file} is committed, and is not there, or is another file")
        return map(_fields, _split(stored, file["name"]))

    def _check_range(self, life: TableId, start: Position, end: Position, rows: list[Fields]) -> None:
        table = self._source.table_id(life)
        for ddl in self._touching(table):
            behind = start <= ddl.position < end and not self._of_another_life(ddl, life)
            if behind and not self._settled(ddl) and not self._background(ddl):
                raise Violation(f"I1: {life} is committed from {start} to {end}, past {ddl.type} at {ddl.position}")
        if not isinstance(self._source, SourceServer):
            return
        found = [(placed(position_of(fields["pos"])), fields) for fields in rows if fields["op"] in _CHANGES]
        there = sorted(((at, str(_version(fields))) for at, fields in found if start <= at < end))
        history = self._source.by_id[table].history
        due = [(at, str(row["v"] if row else None)) for at, _, row in history if start <= at < end]
        if there != due:
            raise Violation(f"I2: {life} is committed from {start} to {end} with {there}, expected {due}")

    def _ddl_written(self, message: Fields) -> None:
        self._count(f"DDL in files: {message['type']}")
        at = placed(position_of(message["pos"]))
        record = self._etcd.record_at(at)
        if message["type"] == "recopy" and not message.get("anew"):
            life = TableId(message["id"])
            self._emptied[life] = max(at, self._emptied.get(life, at))
            return
        if record is None or not record.open:
            raise Violation(f"I5: {message}, but no record of it is open: {record}")
        self._check_order(record)
        self._done[at] += 1
        for life in () if record.background else record.scope.tables:
            ends = life in self._etcd.stragglers and self._is_ended(life)
            if not ends and not self._is_covered(life, at):
                raise Violation(f"I1: {record.event}, but {life} is committed in {self._covered.get(life)} only")

    def _marked(self, mark: Fields) -> None:
        status = self._status
        if status is None or status.checkpoint is None or position_of(mark["pos"]) > status.checkpoint:
            raise Violation(f"W3: the watermark {mark} is past the checkpoint")
        self._marks.append(mark["pos"])
        behind: dict[TableId, str] = {} if mark["tables"] == "all" else mark["tables"]
        for id, table in self._source.by_id.items():
            if id not in self._entering:
                self._check_table(id, table, None, placed(position_of(behind.get(self.known_as(id), str(mark["pos"])))))
        self._last_mark = mark
        if self._looks.random() < _FOLLOWS:
            self._follow()

    def _is_covered(self, life: TableId, at: Position) -> bool:
        """Up to there, or nothing was due before it. A gap that is farther back is seen by the reader."""
        table = self._source.table_id(life)
        if self._etcd.in_copy(table) or any(start < at <= end for start, end in self._covered.get(life, ())):
            return True
        again = self._emptied.get(life, _FIRST), self._etcd.entered.get(life, _FIRST)
        return at <= max(self._begun_at(table), *again)

    def _begun_at(self, table: TableId) -> Position:
        """Where the table began to be the changefeed's."""
        start = self._status.start if self._status is not None else None
        entered = [ddl.position for ddl in self._touching(table) if not self._wanted_at(table, ddl.position)]
        return max([*entered, *([placed(start)] if start is not None else [])])

    def _check_table(self, id: TableId, table: Table, collection: Collection | None, checkpoint: Position) -> None:
        if self._wanted_at(id, checkpoint) and not self._is_covered(self.known_as(id), checkpoint):
            covered = self._covered.get(self.known_as(id))
            raise Violation(f"I2: checkpoint {checkpoint}, but {id} ({table.name}) is committed in {covered} only")

    def damage(self, random: Random) -> None:
        """Nobody else writes into the store."""

    # what is read

    def _follow(self) -> None:
        round = self._reader.look()
        for shown in self._reader.read(round) if round is not None else ():
            match shown.content:
                case CopyBegins(table):
                    self._replica.copy_begins(table)
                case Copied(table):
                    self._replica.copied(table)
                case message:
                    self._count("messages read")
                    self._replica.take(message.fields)
                    self._shown.append(json.loads(message.json))

    @property
    def arrived(self) -> bool:
        mark = self._last_mark
        if mark is None or mark["tables"] != "all" or not super().arrived:
            return False
        at = placed(position_of(mark["pos"]))
        return at > self._source.last_event and at.ts > self._copied_until

    def differences(self, *, repaired: bool = False) -> list[str]:
        self._follow()
        mark = json.loads(self._reader.mark.message("feed"))
        found = promises([*self._shown, mark], self._marks)
        due = {
            str(self._agreement.target(name)): table for name, table in self._source.tables.items() if self.wants(name)
        }
        there = self._replica.by_name
        found += [f"{name} is missing" for name in due.keys() - there.keys()]
        found += [f"{name} is too much" for name in there.keys() - due.keys()]
        for name in sorted(due.keys() & there.keys()):
            table, replica = due[name], there[name]
            found += [
                f"{name} row {key}: {replica.rows.get(key)} instead of {table.rows.get(key)}"
                for key in table.rows.keys() | replica.rows.keys()
                if table.rows.get(key) != replica.rows.get(key)
            ]
            definitions = table.options, table.indexes, replica.options, replica.indexes
            found += [f"{name} {difference}" for difference in definition_differences(*definitions)]
        return found


def _split(stored: bytes, name: str) -> list[bytes]:
    if ".json" in name:
        return stored.splitlines()
    return [bytes(each.raw) for each in bson.decode_all(stored, _RAW)]


def _fields(message: bytes) -> Fields:
    if message.startswith(_JSON_BEGINS):
        fields: Fields = json_util.loads(message)
        return fields
    return bson.decode(message)


def _version(fields: Fields) -> int | None:
    """The number of the row's version that the message makes; None for a delete."""
    if fields["op"] == "d":
        return None
    version: int = fields["after"]["v"] if "after" in fields else fields["update"]["set"]["v"]
    return version
