"""`MongoDocumentLoader`: loads whole documents into one table with raw insert commands, each durable on a majority.

An insert that is sent twice because its first reply was lost finds its own documents. They are equal, because a chunk is read at one time.
The row writer handles any other refusal of a row: it replaces, retries, isolates, or writes a dead letter.

A capped table, which is loaded in one pass, must receive no document twice: it would have the wrong order. If an insert was sent twice,
the load ends with a retryable error and starts again with a new table.

An insert that takes too long is halved, and so are those that follow it: over a slow link a reply of the source may take longer than a permit. Not
for a capped table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import structlog
from bson import ObjectId
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.cluster_time import ClusterTime
from changefeed.documents.document import RAW, raw_document
from changefeed.documents.row_key import LAST_KEY, KeyRange, id_alone
from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.event import RowType
from sink.mongodb.commander import Commander, TakesTooLong
from sink.mongodb.connection import Client, holds_documents
from sink.mongodb.refusal import refusal_of
from sink.mongodb.rows.row_writer import MongoRowWriter, RowWriterOptions
from sink.mongodb.rows.statements.exact_insert import holds_zero_time
from sink.mongodb.target_errors import translated
from sink.row import RowChange, TargetTable
from sink.sink import DocumentLoader, Permit

_MAJORITY = {"w": "majority"}
_MOST = 100_000
"""Statements in one command; every server accepts this number."""
_BYTES = 40_000_000
"""A message may have 48,000,000 bytes."""
_CLEARED_AT_ONCE = 10_000

_log = structlog.get_logger(__name__)


class MongoDocumentLoader(DocumentLoader):
    """`once`: no document may be sent twice. `kept`: the table may hold documents that no load wrote, so a duplicate is replaced."""

    def __init__(
        self,
        client: Client,
        *,
        table: TargetTable,
        once: bool,
        kept: bool = False,
        permit: Permit,
        options: RowWriterOptions | None = None,
    ) -> None:
        options = options or RowWriterOptions()
        self._client = client
        self._table = table
        self._once = once
        self._kept = kept
        self._most_bytes = _BYTES
        self._commander = Commander(client, permit=permit, retry_for=options.retry_for, patience=options.patience)
        self._rows = MongoRowWriter(client, permit=permit, options=options)

    def empty(self) -> bool:
        self._settle()
        name = self._table.name
        with translated(f"looking for documents in {name}", RowRejected):
            return not holds_documents(self._client, name)

    def clear(self, range: KeyRange) -> int:
        self._settle()
        removed = 0
        while keys := self._found(range):
            self._remove(keys)
            removed += len(keys)
        if removed:
            _log.info("chunk_cleared", table=str(self._table.name), range=str(range), documents=removed)
        return removed

    def load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        if not any(map(holds_zero_time, documents)):
            self._load(documents, read_ts)
        elif self._table.ordered:
            for exact, run in groupby(documents, holds_zero_time):
                write = self._one_by_one if exact else self._load
                write(list(run), read_ts)
        else:
            self._load([each for each in documents if not holds_zero_time(each)], read_ts)
            self._one_by_one([each for each in documents if holds_zero_time(each)], read_ts)

    def _load(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        """A shard knows nothing of a document of the same `_id` on another one, so each is looked for where there may be some."""
        looks = self._kept and self._rows.shards(self._table)
        begin = tried = 0
        while begin < len(documents):
            end = _end_of_part(documents, begin, self._most_bytes)
            if begin < tried:
                end = min(end, tried)
            part = documents[begin:end]
            try:
                if looks:
                    self._one_by_one(part, read_ts)
                else:
                    self._insert(part, read_ts, again=begin < tried)
            except TakesTooLong:
                self._most_bytes, tried = sum(map(len, part)) // 2, max(tried, end)
                _log.info("loads_are_halved", documents=len(part), table=str(self._table.name))
            else:
                begin = end

    def _settle(self) -> None:
        """Waits until earlier removals are on a majority: otherwise an election could bring removed documents back after the read. Of a table on
        several shards, on each.
        """
        sharded = self._rows.shards(self._table)
        nothing = [{"q": {"_id": ObjectId()}, "limit": 0 if sharded else 1}]
        waiting = self._table.name.coll if sharded else "sluice.majority"
        command = {"delete": waiting, "deletes": nothing, "writeConcern": _MAJORITY}
        self._commander.begin()
        self._commander.send(
            self._table.name.db, command, f"waiting for the majority before reading {self._table.name}"
        )

    def _found(self, range: KeyRange) -> list[RawBSONDocument]:
        name = self._table.name
        with translated(f"looking for old documents in {name}", RowRejected):
            bounds = {"min": range.lower, "max": range.upper}
            given = {key: raw_document(bound.raw) for key, bound in bounds.items() if bound is not None}
            keys = self._keys({"hint": {"_id": 1}, **given})
            if not keys and range.last_key_apart:
                keys = self._keys({"filter": raw_document(LAST_KEY.raw)})
            return keys

    def _keys(self, wanted: Mapping[str, Any]) -> list[RawBSONDocument]:
        """The first ones. A reply ends at 16 MB, whatever its limit."""
        name = self._table.name
        find = {"find": name.coll, **wanted, "projection": {"_id": 1}, "limit": _CLEARED_AT_ONCE, "singleBatch": True}
        batch = {"batchSize": _CLEARED_AT_ONCE}
        return list(self._client[name.db].command({**find, **batch}, codec_options=RAW)["cursor"]["firstBatch"])

    def _remove(self, keys: list[RawBSONDocument]) -> None:
        deletes = [{"q": key, "limit": 1} for key in keys]
        command = {"delete": self._table.name.coll, "deletes": deletes, "ordered": False, "writeConcern": _MAJORITY}
        self._commander.begin()
        reply = self._commander.send(
            self._table.name.db, command, f"removing old documents from {self._table.name}"
        ).document
        if errors := reply.get("writeErrors"):
            raise SinkUnavailable(f"removing old documents from {self._table.name}: {errors[0].get('errmsg')}")

    def _insert(self, documents: Sequence[bytes], read_ts: ClusterTime, *, again: bool) -> None:
        """`again`: any of the documents may have been inserted before."""
        doing = f"{len(documents)} documents read at {read_ts} into {self._table.name}"
        command = {
            "insert": self._table.name.coll,
            "documents": [raw_document(document) for document in documents],
            "ordered": self._table.ordered,
            "writeConcern": _MAJORITY,
            "bypassDocumentValidation": True,
        }
        self._commander.begin()
        try:
            reply = self._commander.send(
                self._table.name.db, command, doing, divisible=len(documents) > 1 and not self._once
            )
        except RowRejected as error:
            if not isinstance(error.__cause__, BSONError | OperationFailure):
                raise
            self._one_by_one(documents, read_ts)
            return
        if reply.again and self._once:
            raise SinkUnavailable(f"{doing}: sent twice, so the target may have duplicates; the table is loaded again")
        refusals = [refusal_of(error) for error in reply.document.get("writeErrors", ())]
        if self._table.ordered and refusals:
            self._one_by_one(documents[refusals[0].index :], read_ts)
        else:
            again = (again or reply.again) and not self._kept
            strange = [each for each in refusals if not (each.duplicate_id and again)]
            self._one_by_one([documents[each.index] for each in strange], read_ts)

    def _one_by_one(self, documents: Sequence[bytes], read_ts: ClusterTime) -> None:
        if documents:
            self._rows.write([self._change(document, read_ts) for document in documents], replay=True)

    def _change(self, document: bytes, read_ts: ClusterTime) -> RowChange:
        return RowChange(self._table, RowType.INSERT, id_alone(document), document, None, read_ts.to_int(), b"")


def _end_of_part(documents: Sequence[bytes], begin: int, most_bytes: int) -> int:
    """Of a part that fits into a command. One reply of a source is nearly always one part."""
    end, size = begin, 0
    while end < len(documents) and end - begin < _MOST:
        size += len(documents[end])
        if end > begin and size > most_bytes:
            break
        end += 1
    return end
