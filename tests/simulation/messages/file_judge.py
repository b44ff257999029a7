"""`FileJudge`: judges a changefeed into a sink of files: what each file says when it is made, besides what `MessageJudge` does.

I1 gate             a commit has no row from behind a DDL that is not done; a DDL is written when its tables are committed up to it
I2 nothing lost     a commit has every change of its ranges, and nothing else; a checkpoint is covered by commits
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sluice_client.feed_directory import FeedDirectory
from sluice_client.file_reader import Reader
from sluice_client.pos import position_of
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import Agreement
from tests.simulation.messages.message_judge import CHANGES, FIRST, Fields, MessageJudge, fields_of, version_of
from tests.simulation.source.oplog import placed

_SUM_PARTS = 2
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


class FileJudge(MessageJudge):
    def __init__(self, cluster: Cluster, agreement: Agreement) -> None:
        super().__init__(cluster, agreement)
        self._store = cluster.store
        self._store.created = self._created
        self._covered: dict[TableId, list[tuple[Position, Position]]] = {}
        """The ranges that are committed, by life."""
        self._proved: dict[TableId, Position] = {}
        """Up to there was covered, by life."""
        self._files = Reader(FeedDirectory(cluster.store))

    @property
    def _reader(self) -> Reader:
        return self._files

    # what is written

    def _created(self, name: str, content: bytes) -> None:
        folder, *within = name.split("/")
        self._count(f"store: file in {folder}")
        match folder:
            case "log" if len(within) == _SUM_PARTS:
                """It says what manifests say."""
            case "log":
                self._committed(json.loads(content))
            case "schema":
                self._described.add(TableId(json.loads(content)["id"]))
            case "ddl":
                self._ddl_written(fields_of(content))
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
        return map(fields_of, _split(stored, file["name"]))

    def _check_range(self, life: TableId, start: Position, end: Position, rows: list[Fields]) -> None:
        table = self._source.table_id(life)
        for ddl in self._touching(table):
            behind = start <= ddl.position < end and not self._of_another_life(ddl, life)
            if behind and not self._settled(ddl) and not self._background(ddl):
                raise Violation(f"I1: {life} is committed from {start} to {end}, past {ddl.type} at {ddl.position}")
        found = [(placed(position_of(fields["pos"])), fields) for fields in rows if fields["op"] in CHANGES]
        there = sorted(((at, str(version_of(fields))) for at, fields in found if start <= at < end))
        due = sorted((at, str(version)) for at, _, version in self._due(table, start, end))
        if there != due:
            raise Violation(f"I2: {life} is committed from {start} to {end} with {there}, expected {due}")

    def _is_covered(self, life: TableId, at: Position) -> bool:
        """Each change that was due before is committed. A window without changes has no commit."""
        table = self._source.table_id(life)
        if self._etcd.in_copy(table):
            return True
        again = self._emptied.get(life, FIRST), self._etcd.entered.get(life, FIRST)
        begun = max(self._begun_at(table), *again, self._proved.get(life, FIRST))
        covered = self._covered.get(life, ())
        due = self._due(table, begun, at)
        if all(any(start <= place < end for start, end in covered) for place, _, _ in due):
            self._proved[life] = max(begun, at)
            return True
        return False

    def _known_of(self, life: TableId) -> str:
        return f"{self._covered.get(life)} in commits"


def _split(stored: bytes, name: str) -> list[bytes]:
    if ".json" in name:
        return stored.splitlines()
    return [bytes(each.raw) for each in bson.decode_all(stored, _RAW)]
