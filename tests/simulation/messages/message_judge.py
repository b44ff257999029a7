"""`MessageJudge`: judges a changefeed into a sink of messages: what is told by the owner, and what a reader makes of all that is there.

I1 gate             a DDL is told when everything of its tables before it is there
W1 to W4            by `tests/e2e/node/event_judge.py`, of what a reader shows that follows the watermarks while the changefeed runs. What it has shown
                    does not come again, so it sees what comes too late
I6 converge         tables that are made of what it shows are equal to those of the source
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from operator import itemgetter
from random import Random
from typing import Any

import bson
from bson import json_util

from changefeed.cluster_time import ClusterTime
from changefeed.position import Position
from changefeed.table import TableId
from sluice_client.feed_reader import Copied, CopyBegins, FeedReader
from sluice_client.pos import position_of
from tests.e2e.node.event_judge import promises
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import Agreement, definition_differences
from tests.simulation.judgement.judge import Judge
from tests.simulation.messages.replica import Replica
from tests.simulation.source.oplog import placed
from tests.simulation.source.sharded.placement import PlacedTable
from tests.simulation.source.tables import Table
from tests.simulation.target.server import Collection

CHANGES = "iuRd"
_FOLLOWS = 0.3
"""The part of the watermarks after which the reader looks."""
_JSON_BEGINS = b'{"v"'
"""A document of BSON may begin with the first sign."""
FIRST = Position(ClusterTime(0, 0))

Fields = dict[str, Any]


class MessageJudge(Judge):
    def __init__(self, cluster: Cluster, agreement: Agreement) -> None:
        super().__init__(cluster, agreement)
        self._emptied: dict[TableId, Position] = {}
        """Where the copy of a table has begun again: what was before does not matter."""
        self._copied_until = ClusterTime(0, 0)
        """A watermark of that time does not show all that was copied."""
        self._described: set[TableId] = set()
        """The tables of which a schema or a create is told."""
        self._looks = Random(f"looks of the reader {cluster.machine.seed}")
        self._replica = Replica()
        self._shown: list[Fields] = []
        self._marks: list[str] = []
        self._last_mark: Fields | None = None

    @property
    def _reader(self) -> FeedReader:
        raise NotImplementedError

    def _is_covered(self, life: TableId, at: Position) -> bool:
        """Whether everything of the table before that place is there."""
        raise NotImplementedError

    def _known_of(self, life: TableId) -> str:
        """What is there, for a message."""
        raise NotImplementedError

    def _due(self, table: TableId, start: Position, end: Position) -> Iterator[tuple[Position, Any, int | None]]:
        """Where the changes of a range are (`placed`), of which key, and which version of the row they make. A document that goes to another shard is
        deleted there first.
        """
        history, moved = self._source.by_id[table].history, self._source.moved
        first = bisect_left(history, start, key=itemgetter(0))
        for at, key, row in history[first : bisect_left(history, end, key=itemgetter(0))]:
            if row is not None and (table, row["v"]) in moved:
                yield placed(at), key, None
            yield placed(at), key, row["v"] if row is not None else None

    # what is told

    def _ddl_written(self, message: Fields) -> None:
        self._count(f"DDL in messages: {message['type']}")
        at = placed(position_of(message["pos"]))
        record = self._etcd.record_at(at)
        if message["type"] == "create":
            self._described.add(TableId(message["id"]))
        if message["type"] == "recopy" and not message.get("anew"):
            life = TableId(message["id"])
            if life not in self._described:
                raise Violation(f"W4: {message}, and nothing has said yet what the table is")
            self._emptied[life] = max(at, self._emptied.get(life, at))
            return
        if record is None or not record.open:
            raise Violation(f"I5: {message}, but no record of it is open: {record}")
        self._check_order(record)
        self._done[at] += 1
        for life in record.scope.tables:
            ends = life in self._etcd.stragglers and self._is_ended(life)
            if not ends and not self._is_covered(life, at):
                raise Violation(f"I1: {record.event}, but of {life} there is {self._known_of(life)}")

    def _marked(self, mark: Fields) -> None:
        self._check_mark(mark)
        self._marks.append(mark["pos"])
        self._last_mark = mark
        if self._looks.random() < _FOLLOWS:
            self._follow()

    def _check_mark(self, mark: Fields) -> None:
        status = self._status
        if status is None or status.checkpoint is None or position_of(mark["pos"]) > status.checkpoint:
            raise Violation(f"W3: the watermark {mark} is past the checkpoint")
        behind: dict[TableId, str] = {} if mark["tables"] == "all" else mark["tables"]
        for record in self._etcd.ddls.values():
            about = record.scope.tables if record.event.id is None else {record.event.id}
            shown = max((position_of(behind.get(table, str(mark["pos"]))) for table in about), default=FIRST)
            if record.open and record.position < shown:
                raise Violation(f"W4: the watermark {mark} is past {record.event}, which is not told yet")
        for id, table in self._source.by_id.items():
            if id not in self._entering:
                self._check_table(id, table, None, placed(position_of(behind.get(self.known_as(id), str(mark["pos"])))))

    def _begun_at(self, table: TableId) -> Position:
        """Where the table began to be the changefeed's."""
        start = self._status.start if self._status is not None else None
        entered = [ddl.position for ddl in self._touching(table) if not self._wanted_at(table, ddl.position)]
        return max([*entered, *([placed(start)] if start is not None else [])])

    def _check_table(self, id: TableId, table: Table, collection: Collection | None, checkpoint: Position) -> None:
        if self._wanted_at(id, checkpoint) and not self._is_covered(self.known_as(id), checkpoint):
            known = self._known_of(self.known_as(id))
            raise Violation(f"I2: checkpoint {checkpoint}, but of {id} ({table.name}) there is {known}")

    def damage(self, random: Random) -> None:
        """Nobody else writes there."""

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
                    self._replica.take(fields_of(message.raw))
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
            key = {table.key: 1} if isinstance(table, PlacedTable) and table.key else None
            found += [f"{name} has the shard key {replica.shard_key} instead of {key}"] * (replica.shard_key != key)
        return found


def fields_of(message: bytes) -> Fields:
    if message.startswith(_JSON_BEGINS):
        fields: Fields = json_util.loads(message)
        return fields
    return bson.decode(message)


def version_of(fields: Fields) -> int | None:
    """The number of the row's version that the message makes; None for a delete."""
    if fields["op"] == "d":
        return None
    version: int = fields["after"]["v"] if "after" in fields else fields["update"]["set"]["v"]
    return version
