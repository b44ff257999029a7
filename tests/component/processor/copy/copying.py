"""Copies one table as a processor does, without Spark and without a loop: its decisions, its tasks, its records in etcd.

A test runs it as a program and kills it: `copying.py SOURCE TARGET ETCD PREFIX DATABASE COLLECTION CHUNK_BYTES`. It prints the number of each
chunk that is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import Document
from changefeed.documents.row_key import KeyRange
from changefeed.errors import RetryableError
from changefeed.event import RowType
from changefeed.position import Position, Window
from changefeed.records.copy import CopiedChunk, CopyPart, CopyRecord, CopyStage
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableName
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout, decode
from processor.copy.copy_task import CopyPlace, copy_chunk
from processor.copy.known_copies import KnownCopies
from processor.copy.plan import (
    Begin,
    BuildIndexes,
    CatchUp,
    CopyChunks,
    CopyInputs,
    decide,
    follows_to,
    read_not_before,
)
from processor.copy.steps import CopyChunk
from processor.copy.table_copy import TableCopy
from processor.copy.target_table import Creation, build_indexes, prepare
from processor.task.copied_ranges import CopiedFilter, Overlap
from processor.task.rows.mounter import Mounter
from schema_store.versions import SchemaVersions
from sink.mongodb.connection import connect as connect_to_target
from sink.mongodb.ddl.ddl_applier import MongoDdlApplier
from sink.mongodb.rows.document_loader import MongoDocumentLoader
from sink.mongodb.rows.row_writer import MongoRowWriter
from source.connection import connect
from source.one_deployment import OneDeployment
from source.oplog.window import majority_time
from source.stream.change_event import scan, update_of
from source.stream.window_reader import ReadOptions, WindowReader
from source.tables.catalog import read_catalog
from source.tables.chunks import divide

ID = ChangefeedId("copying")


def permit() -> float:
    return 30.0


@dataclass
class Copying:
    source_uri: str
    target_uri: str
    etcd_endpoint: str
    prefix: str
    name: TableName
    chunk_bytes: int
    on_chunk: Callable[[int], object] = lambda _: None
    follow_after: int | None = None
    divide_after: int | None = None

    def __post_init__(self) -> None:
        self.source, self.target = connect(self.source_uri), connect_to_target(self.target_uri)
        self.etcd = EtcdClient(EtcdConfig(endpoints=(self.etcd_endpoint,)))
        self.layout = Layout(self.prefix.strip("/"))
        self.known = KnownCopies(ID, self.layout)
        reading = read_catalog(self.source, self.name.__eq__)
        [self.schema] = reading.tables
        stored = self.stored()
        self.checkpoint = stored.start if stored else reading.position
        self.schema = replace(self.schema, valid_from=self.checkpoint)
        self.creation = Creation(schema=self.schema, name=self.name, route=lambda name: name)
        self.table = Mounter(SchemaVersions.of([self.schema]), lambda name: name, update_of).mounted(self.schema).target
        self.ddl = MongoDdlApplier(self.target, permit=permit)

    def close(self) -> None:
        self.source.close()
        self.target.close()
        self.etcd.close()

    def stored(self) -> TableCopy | None:
        table = self.layout.copy(ID, self.schema.id)
        found = self.etcd.get(table)
        if found is None:
            return None
        parts = self.etcd.range(f"{table}/").items
        return TableCopy.from_records(decode(CopyRecord, found), [decode(CopyPart, kv) for kv in parts])

    def loader(self, *, whole: bool) -> MongoDocumentLoader:
        return MongoDocumentLoader(self.target, table=self.table, once=whole, permit=permit)

    def run(self) -> TableCopy:
        """Runs until the copy is done."""
        while True:
            copy = self.stored()
            if copy is not None and copy.stage is CopyStage.DONE:
                return copy
            barrier = Position(majority_time(self.source))
            sight = CopyInputs(
                table=self.schema.id,
                start=self.checkpoint,
                checkpoint=self.checkpoint,
                barrier=barrier,
                follow_after=self.follow_after,
                parallelism=2,
            )
            try:
                if copy is not None and not copy.complete and follows_to(copy, sight) > self.checkpoint:
                    self.catch_up(copy, follows_to(copy, sight))
                else:
                    self.act(copy, decide(copy, sight), read_not_before(sight))
            except RetryableError as error:
                sys.stdout.write(f"again after: {error}\n")

    def act(self, copy: TableCopy | None, action: object, not_before: Position) -> None:
        match action:
            case Begin(start):
                before = self.ddl.observe([self.creation.name])
                prepare(self.creation, self.ddl, self.loader(whole=False), before, ours=copy is not None)
                division = divide(self.source, self.schema, chunk_bytes=self.chunk_bytes)
                self.record(TableCopy.planned(start, division.bounds, whole=division.whole))
            case CopyChunks(numbers) if copy is not None:
                for range in [copy.chunks[number] for number in numbers]:
                    copy = self.copy_one(copy, range, not_before)
            case CatchUp(until) if copy is not None:
                self.catch_up(copy, until)
            case BuildIndexes() if copy is not None:
                build_indexes(self.creation, self.ddl)
                self.record(copy.done())
            case _:
                self.source[self.name.db]["__other"].update_one({"_id": 0}, {"$inc": {"n": 1}}, upsert=True)

    def record(self, copy: TableCopy) -> None:
        for op in self.known.written(self.schema.id, copy):
            self.etcd.txn((), [op])

    def step(self, copy: TableCopy, range: KeyRange, not_before: Position) -> CopyChunk:
        return CopyChunk(
            schema=self.schema,
            range=range,
            whole=copy.record.whole,
            not_before=not_before,
            copied_from=copy.start,
            divide_after=self.divide_after,
        )

    def copy_one(self, copy: TableCopy, range: KeyRange, not_before: Position) -> TableCopy:
        loader = self.loader(whole=copy.record.whole)
        place = CopyPlace(
            source=OneDeployment(self.source, Capture.CHANGE_STREAM),
            loader=loader,
            creation=self.creation,
            ddl=self.ddl,
            check_wanted=permit,
        )
        read = copy_chunk(self.step(copy, range, not_before), place)
        copy, number = copy.with_chunk(read.range, read.copied), copy.number_from(range.lower)
        self.etcd.txn((), [self.known.part_written(self.schema.id, copy, copy.part_of(number))])
        self.on_chunk(number)
        return copy

    def catch_up(self, copy: TableCopy, until: Position) -> None:
        """Applies changes as the lane's job does for a table that is being copied."""
        kinds = {"$in": [kind.value for kind in RowType]}
        match = Document.of({"ns.db": self.name.db, "ns.coll": self.name.coll, "operationType": kinds})
        mounter = Mounter(SchemaVersions.of([self.schema]), lambda name: name, update_of)
        writer, copied_filter = MongoRowWriter(self.target, permit=permit), CopiedFilter(copy.ranges)
        for batch in WindowReader(self.source, ReadOptions(match=match)).read(Window(self.checkpoint, until)):
            changes = [mounter.mount(event, scan(event)) for event in batch.events]
            fates = [copied_filter.overlap(change.key, change.time) for change in changes]
            for overlap in (Overlap.REPLAYED, Overlap.NEW):
                wanted = [change for change, found in zip(changes, fates, strict=True) if found is overlap]
                if wanted:
                    writer.write(wanted, replay=overlap is Overlap.REPLAYED)
        self.checkpoint = until

    def catch_up_to_now(self) -> None:
        """Applies changes as for a table without a copy."""
        self.source[self.name.db]["__other"].insert_one({})
        nothing_held = TableCopy.planned(self.checkpoint, (), whole=True)
        before = CopiedChunk(after=ClusterTime(0, 0), until=ClusterTime(0, 0), documents=0, bytes=0)
        self.catch_up(nothing_held.with_chunk(KeyRange(), before), Position(majority_time(self.source)))


def main() -> None:
    source, target, etcd, prefix, database, collection, size = sys.argv[1:]
    copying = Copying(source, target, etcd, prefix, TableName(database, collection), int(size))
    copying.on_chunk = lambda number: sys.stdout.write(f"{number}\n") and sys.stdout.flush()
    copying.run()
    copying.close()


if __name__ == "__main__":
    main()
