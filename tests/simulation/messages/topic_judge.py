"""`TopicJudge`: judges a changefeed into topics: each message when it gets its place in a partition, besides what `MessageJudge` does.

A message may come again, and a change may come again after later ones. What is judged is when it comes first:

I1 gate             a change does not come before a DDL of its table that is not told, nor first after a later one that is
I2 nothing lost     when a DDL is told, or a checkpoint or a watermark is published, every change of its tables before it is there; a change is one
                    of the source, with the row as it was
W1                  the changes of a key are in the order of their places, within one partition
W4 in-band          when a DDL of one name is done, it is told in each partition of its table's topics
W3, W4 in-band      a change does not come first behind a watermark or a DDL of its table in its partition that is later than it
"""

from __future__ import annotations

import json
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import bson

from changefeed.cluster_time import ClusterTime
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.event import DdlType
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, DdlState
from changefeed.table import TableId
from sink.messages.kafka.kafka_reader import KafkaReader
from sink.messages.kafka.topics import Topics
from sluice_client.pos import position_of
from tests.simulation.clockwork.machine import Violation
from tests.simulation.cluster import Cluster
from tests.simulation.judgement.agreement import Agreement
from tests.simulation.messages.broker import Partition, Sent
from tests.simulation.messages.broker_clients import BrokerClients
from tests.simulation.messages.message_judge import CHANGES, FIRST, Fields, MessageJudge, fields_of, version_of
from tests.simulation.source.oplog import placed
from tests.simulation.source.row_keys import as_key

_OF_ONE_NAME = (DdlType.CREATE, DdlType.CREATE_INDEXES, DdlType.DROP_INDEXES, DdlType.MODIFY, DdlType.DROP)


class TopicJudge(MessageJudge):
    def __init__(self, cluster: Cluster, agreement: Agreement, uri: str) -> None:
        super().__init__(cluster, agreement)
        self._options = KafkaSinkOptions.parse(uri)
        self._topics = Topics(self._options)
        self._broker = cluster.broker
        self._broker.appended = self._appended
        self._there: dict[TableId, set[tuple[Position, Any]]] = {}
        """The changes that are there, by life: places and keys."""
        self._whole_until: dict[TableId, Position] = {}
        """Up to where all changes are known to be there, by life."""
        self._copied_at: dict[TableId, Position] = {}
        """From where on changes fit the newest copy, by life."""
        self._newest: dict[tuple[TableId, Any], tuple[Position, Partition]] = {}
        """By life and key."""
        self._limits: dict[Partition, dict[TableId | None, Position]] = {}
        """What is said in-band, of a table or of all."""
        self._lives: set[tuple[str, TableId]] = set()
        """Of which topics have rows or schemas."""
        self._told: set[tuple[str, str, str]] = set()

    @cached_property
    def _reader(self) -> KafkaReader:  # opened when there are topics
        clients: Any = SimpleNamespace(
            admin=BrokerClients(self._broker).admin(),
            consumer_settings={},
            why=lambda: None,
            answered=lambda: None,
            forget_admin=lambda: None,
        )
        reader = KafkaReader(lambda: clients, self._options)
        reader.identity()
        return reader

    # what is sent

    def _appended(self, partition: Partition, message: Sent) -> None:
        topic, fields = partition[0], fields_of(message.value or b"")
        if topic == self._topics.feed:
            return
        if topic == self._topics.watermark:
            self._count("broker: watermark")
            self._marked(json.loads(message.value or b"") if "op" not in fields else fields)
        elif topic == self._topics.ddl:
            self._said(fields)
        else:
            self._in_rows(partition, fields)

    def _said(self, fields: Fields) -> None:
        if fields["op"] == "c":
            life, at = TableId(fields["id"]), placed(position_of(fields["pos"]))
            self._copied_at[life] = max(at, self._copied_at.get(life, at))
            return
        if fields["op"] != "ddl":
            self._described.add(TableId(fields["id"]))
            self._copied_until = max(self._copied_until, position_of(fields["pos"]).ts)
            return
        what = fields["pos"], fields["type"], str(fields.get("id"))
        if what in self._told:
            self._count("broker: DDL that comes again")
            return
        self._told.add(what)
        self._ddl_written(fields)

    def _in_rows(self, partition: Partition, fields: Fields) -> None:
        self._count(f"broker: {fields['op']} in a topic of rows")
        limits = self._limits.setdefault(partition, {})
        if fields["op"] in "biuRdr":
            self._lives.add((partition[0], TableId(fields["id"])))
        if fields["op"] == "r":
            self._copied(fields)
            return
        at = placed(position_of(fields["pos"]))
        match fields["op"]:
            case "w":
                self._check_mark(fields)
                if fields["tables"] == "all":
                    limits[None] = max(at, limits.get(None, FIRST))
            case "ddl":
                for life in map(TableId, fields.get("ids", [fields.get("id")])):
                    limits[life] = max(at, limits.get(life, FIRST))
            case op if op in CHANGES:
                self._changed(partition, fields, at)

    def _copied(self, fields: Fields) -> None:
        """The document stands behind all changes of the time at which it was read. It may be another table's, if names have changed: then the copy
        begins again.
        """
        pos = fields["pos"]
        self._copied_until = max(self._copied_until, ClusterTime(int(pos[:8], 16), int(pos[8:16], 16)))

    def _changed(self, partition: Partition, fields: Fields, at: Position) -> None:
        life = TableId(fields["id"])
        table = self._source.table_id(life)
        key = as_key(bson.decode(bson.encode(fields["key"]))["_id"])
        there = self._there.setdefault(life, set())
        if (at, key) in there:
            self._count("broker: change that comes again")
            return
        what = f"{fields['op']} of {key} of {life} at {at}"
        due = self._due(table, at, Position(at.ts.next()))
        versions = [version for place, each, version in due if (place, each) == (at, key)]
        if version_of(fields) not in versions:
            raise Violation(f"I2: {what} makes version {version_of(fields)}, expected {versions}")
        there.add((at, key))
        self._check_gate(life, table, at, what)
        if self._etcd.in_copy(table):
            return
        limits = self._limits[partition]
        if at < (limit := max(limits.get(None, FIRST), limits.get(life, FIRST))):
            raise Violation(f"W3: {what} comes first behind what is said of {limit} in {partition}")
        newest, place = self._newest.get((life, key), (at, partition))
        if newest > at or (place[0] == partition[0] and place != partition):
            raise Violation(f"W1: {what} comes first in {partition} after that of {newest} in {place}")
        self._newest[life, key] = at, partition

    def _recorded(self, record: DdlRecord) -> None:
        super()._recorded(record)
        life, at = record.event.id, placed(record.position)
        table = record.event.table if record.event.type in _OF_ONE_NAME else None
        if record.state is not DdlState.DONE or at not in self._done or life is None or table is None:
            return
        topic = self._topics.of(self._agreement.target(table))
        if (topic, life) not in self._lives:
            return  # it has come into the filter, and nothing of it was sent before it ended
        for number in range(self._options.partitions):
            if self._limits.get((topic, number), {}).get(life, FIRST) < at:
                raise Violation(f"W4: {record.event} is done, and not told in {topic}/{number}")

    def _check_gate(self, life: TableId, table: TableId, at: Position, what: str) -> None:
        for ddl in self._touching(table):
            if self._of_another_life(ddl, life):
                continue
            if ddl.position < at and not self._settled(ddl):
                raise Violation(f"I1: {what} before {ddl.type} at {ddl.position}")
            if ddl.position > at and ddl.position in self._done and not self._background(ddl):
                raise Violation(f"I1: {what} after {ddl.type} at {ddl.position}")

    def _is_covered(self, life: TableId, at: Position) -> bool:
        return not self._lacks(life, at)

    def _known_of(self, life: TableId) -> str:
        lacks = self._lacks(life, max((each for each, _ in self._there.get(life, ())), default=FIRST))
        return f"all but {lacks}, and what is behind that"

    def _lacks(self, life: TableId, until: Position) -> list[tuple[Position, Any]]:
        """The changes before that place that are not there and have to be."""
        table = self._source.table_id(life)
        copied = life in self._etcd._copied.get(table, ())
        if self._etcd.in_copy(table):
            return []
        if copied and life not in self._copied_at:
            return []
        there, known = self._there.get(life, set()), self._whole_until.get(life, FIRST)
        lacking = [(at, key) for at, key, _ in self._due(table, known, until) if (at, key) not in there]
        if lacking:
            places = (self._emptied, self._etcd.entered, self._copied_at)
            begun = max(self._begun_at(table), *(each.get(life, FIRST) for each in places))
            lacking = [(at, key) for at, key in lacking if at >= begun]
        if not lacking:
            self._whole_until[life] = max(known, until)
        return lacking
