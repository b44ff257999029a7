"""`command_of`, `outcome_of`: a bulk command in raw BSON, and the result of each change from its reply. Pure.

PyMongo sends the statements of `insert`, `update` and `delete` as a document sequence beside the command, so a message may have
the server's largest size (48 MB) and documents are copied as raw bytes. `bulkWrite` (8.0) is sent as one document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import bson
from bson.raw_bson import RawBSONDocument

from changefeed.bson_bytes import elements
from changefeed.documents.document import raw_document
from changefeed.documents.row_key import id_alone, only_id
from changefeed.event import RowType
from changefeed.table import TableName
from sink.mongodb.refusal import Refusal, refusal_of
from sink.mongodb.rows.bulk_plan import Batch, phase
from sink.mongodb.rows.row_place import RowQuery, filter_of_ids, found_by_key, own_filter, spread
from sink.mongodb.rows.statements.exact_insert import exact_insert, holds_zero_time
from sink.mongodb.rows.statements.update_translation import (
    NO_REMOVED,
    Inexpressible,
    TranslatedUpdate,
    plain_sets,
    translate,
)
from sink.row import RowChange, TargetTable

_MAJORITY = {"w": "majority"}
_NO_UPDATE = bson.encode({})
_UPDATE = RowType.UPDATE
_LARGEST_STATEMENT = (16 << 20) + (16 << 10) - 256
"""A server accepts a statement of 16 MB and 16 KB; the largest document has 16 MB."""
_QUERY, _OPERATION = b"\x03q\0", b"\x03u\0"
_JOINED_QUERY, _JOINED_OPERATION, _JOINED_DOCUMENT = b"\x03filter\0", b"\x03updateMods\0", b"\x03document\0"
_INSERT_INTO, _UPDATE_IN, _DELETE_FROM = b"\x10insert\0", b"\x10update\0", b"\x10delete\0"
_NO_MULTI, _UPSERT, _LIMIT_ONE = b"\x08multi\0\0", b"\x08multi\0\0\x08upsert\0\1", b"\x10limit\0\1\0\0\0"

CommandBody: TypeAlias = dict[str, Any]
Statement: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOutcome:
    """`done`: the number of changes that were tried, from the first on. `unmatched`: how many of them found no document.

    `unmatched_at`: their indexes, if the reply contains them.
    """

    done: int
    refusals: list[Refusal]
    unmatched: int = 0
    unmatched_at: list[int] | None = None


def command_of(batch: Batch) -> tuple[str, CommandBody]:
    """The database and the command. It bypasses validators: the source has accepted the documents. Raises `Inexpressible`."""
    if batch.joined:
        return "admin", _bulk_write(batch)
    name = batch.changes[0].table.name
    options: CommandBody = {"ordered": batch.ordered, "writeConcern": _MAJORITY}
    match phase(batch.changes[0]):
        case 0:
            documents = [raw_document(change.document or b"") for change in batch.changes]
            return name.db, {"insert": name.coll, "documents": documents, **options, "bypassDocumentValidation": True}
        case 1:
            updates = [_update_statement(change, first=batch.first) for change in batch.changes]
            return name.db, {"update": name.coll, "updates": updates, **options, "bypassDocumentValidation": True}
        case _:
            at_once = _deletes_at_once(batch)
            deletes = [_delete_of_all(batch)] if at_once else [_delete_statement(change) for change in batch.changes]
            return name.db, {"delete": name.coll, "deletes": deletes, **options}


def _update_statement(change: RowChange, *, first: bool) -> Statement:
    plain = _plain_update(change, b"", _QUERY, _OPERATION)
    return plain if plain is not None else _update(change, "q", "u", first=first)


def _plain_update(change: RowChange, head: bytes, query: bytes, name: bytes) -> Statement | None:
    """The statement made from the event's raw bytes, which suffices for most changes; None for the others."""
    if change.type is _UPDATE:
        operation, rest = plain_sets(change.update or b""), _NO_MULTI
    else:
        document = change.document or b""
        operation, rest = None if b"$" in document or holds_zero_time(document) else document, _UPSERT
    if operation is None or not found_by_key(change):
        return None
    return _statement(head, query, change.key, name, operation, rest)


def _delete_statement(change: RowChange) -> Statement:
    if found_by_key(change):
        return _statement(_QUERY, change.key, _LIMIT_ONE)
    return {"q": own_filter(change), "limit": 1}


def _deletes_at_once(batch: Batch) -> bool:
    """Whether one statement deletes all rows. That costs a server a third less."""
    first = batch.changes[0]
    several = len(batch.changes) > 1 and not batch.joined and first.type is RowType.DELETE
    return several and not spread(first.table) and all(only_id(change.key) for change in batch.changes)


def _delete_of_all(batch: Batch) -> Statement:
    """`_id: {$in: [...]}`, from the keys' bytes."""
    elements = b"".join(
        b"%c%d\0%b" % (change.key[4], number, change.key[9:-1]) for number, change in enumerate(batch.changes)
    )
    array = b"".join(((len(elements) + 5).to_bytes(4, "little"), elements, b"\0"))
    among = b"".join(((len(array) + 10).to_bytes(4, "little"), b"\x04$in\0", array, b"\0"))
    query = b"".join(((len(among) + 10).to_bytes(4, "little"), b"\x03_id\0", among, b"\0"))
    return _statement(_QUERY, query, b"\x10limit\0\0\0\0\0")


def _statement(*parts: bytes) -> RawBSONDocument:
    body = b"".join(parts)
    return raw_document(b"".join(((len(body) + 5).to_bytes(4, "little"), body, b"\0")))


def _update(change: RowChange, query: str, operation: str, *, first: bool) -> CommandBody:
    if change.type is not RowType.UPDATE:
        document = change.document or b""
        if holds_zero_time(document):
            return _upsert(*exact_insert(own_filter(change), document, sharded=spread(change.table)), query, operation)
        return _upsert(own_filter(change), _replacement(document), query, operation)
    update = translate(change.update or b"", first=first)
    if update is None:
        update = _NOTHING
    if update.upserts:
        return _upsert(own_filter(change), update.operation, query, operation)
    where = {name: {"$exists": False} for name in update.absent}
    if update.fits is not None:
        where["$expr"] = update.fits
    return {query: own_filter(change, where), operation: update.operation, "multi": False}


def _upsert(finds: RowQuery, makes: Any, query: str = "q", operation: str = "u") -> CommandBody:
    return {query: finds, operation: makes, "multi": False, "upsert": True}


def _replacement(raw: bytes) -> Mapping[str, Any] | list[CommandBody]:
    """The server would read a document with a field like `$set` as an operator document, and put its time into a zero timestamp."""
    document = raw_document(raw)
    if holds_zero_time(raw) or (b"$" in raw and any(name.startswith(b"$") for name, _, _, _ in elements(raw))):
        return [{"$replaceWith": {"$literal": document}}]
    return document


_NOTHING = TranslatedUpdate(operation=[{"$replaceWith": "$$ROOT"}])
"""An update event without a change still states that its document exists."""


def _bulk_write(batch: Batch) -> CommandBody:
    namespaces: dict[TableName, int] = {}
    statements: list[Statement] = []
    for change in batch.changes:
        at = namespaces.setdefault(change.table.name, len(namespaces))
        statements.append(_joined_statement(change, at, first=batch.first))
    return {
        "bulkWrite": 1,
        "ops": statements,
        "nsInfo": [{"ns": str(name)} for name in namespaces],
        "ordered": batch.ordered,
        "errorsOnly": all(change.type is not RowType.UPDATE for change in batch.changes),
        "bypassDocumentValidation": True,
        "writeConcern": _MAJORITY,
    }


def _joined_statement(change: RowChange, at: int, *, first: bool) -> Statement:
    where = at.to_bytes(4, "little")
    match phase(change):
        case 0:
            return _statement(_INSERT_INTO, where, _JOINED_DOCUMENT, change.document or b"")
        case 1:
            plain = _plain_update(change, _UPDATE_IN + where, _JOINED_QUERY, _JOINED_OPERATION)
            if plain is not None:
                return plain
            return {"update": at, **_update(change, "filter", "updateMods", first=first)}
        case _ if found_by_key(change):
            return _statement(_DELETE_FROM, where, _JOINED_QUERY, change.key, _NO_MULTI)
        case _:
            return {"delete": at, "filter": own_filter(change), "multi": False}


def has_statement(change: RowChange, *, first: bool) -> bool:
    try:
        translate(change.update or _NO_UPDATE, first=first)
    except Inexpressible:
        return False
    return True


def adds_fields(change: RowChange) -> bool:
    """Whether an update without a match may have found its new field there: it was applied before, or the source moved the field to the end."""
    if change.update is None or NO_REMOVED in change.update:
        return False
    try:
        update = translate(change.update, first=True)
    except Inexpressible:
        return False
    return update is not None and bool(update.absent)


def depends_on_shape(change: RowChange) -> bool:
    """Whether an update without a match may have a document of another shape: the server's reply does not distinguish the two."""
    update = translate(change.update or b"")
    return update is not None and update.fits is not None


def present_command(changes: Sequence[RowChange]) -> tuple[str, CommandBody]:
    """Finds which of the changes' documents exist; only for a table that is not sharded."""
    name, wanted = changes[0].table.name, filter_of_ids(change.key for change in changes)
    find = {"find": name.coll, "filter": wanted, "projection": {"_id": 1}, "singleBatch": True}
    return name.db, {**find, "batchSize": len(changes) + 1}


def document_command(change: RowChange) -> tuple[str, CommandBody]:
    """Finds the document of a change."""
    return change.table.name.db, found_command(change.table, own_filter(change))


def anywhere_command(change: RowChange) -> tuple[str, CommandBody]:
    """Finds the document of a change, wherever the target has it."""
    return change.table.name.db, found_command(change.table, raw_document(id_alone(change.key)))


def found_command(table: TargetTable, filter_: RowQuery) -> CommandBody:
    return {"find": table.name.coll, "filter": filter_, "limit": 1, "singleBatch": True}


def net_command(change: RowChange) -> tuple[str, CommandBody]:
    """A whole document that keeps its zero timestamps, at the primary."""
    whole = [{"$replaceWith": {"$literal": raw_document(change.document or b"")}}]
    statement = _upsert(own_filter(change), whole)
    return _alone(change, {"update": change.table.name.coll, "updates": [statement], "bypassDocumentValidation": True})


def exchange_commands(
    table: TargetTable, filters: Sequence[RowQuery], documents: Sequence[tuple[RowQuery, bytes]]
) -> list[CommandBody]:
    """One document in each command: together they may exceed a message."""
    removes = [{"delete": table.name.coll, "deletes": [{"q": filter_, "limit": 1}]} for filter_ in filters]
    return [*removes, *(_inserting(table, filter_, document) for filter_, document in documents)]


def renewal_commands(change: RowChange) -> list[CommandBody]:
    """Removes the document and inserts its new state; both commands run in one transaction."""
    remove = {"delete": change.table.name.coll, "deletes": [_any_of_its_id(change)]}
    return [remove, _inserting(change.table, own_filter(change), change.document or b"")]


def rewrite_command(change: RowChange, document: bytes) -> CommandBody:
    """The document instead of the one that there is."""
    return _rewriting(change, own_filter(change), document)


def rewrite_alone_command(change: RowChange, document: bytes, *, if_still: bytes | None) -> tuple[str, CommandBody]:
    """The same without a transaction. The one that there is must still equal another one. Servers before 6.0 fail at `$eq` of a whole document."""
    still = {"$cmp": ["$$ROOT", {"$literal": raw_document(if_still)}]} if if_still else None
    unchanged = {} if still is None else {"$expr": {"$eq": [still, 0]}}
    return _alone(change, _rewriting(change, own_filter(change, unchanged), document))


def _rewriting(change: RowChange, filter_: RowQuery, document: bytes) -> CommandBody:
    statement = {"q": filter_, "u": _replacement(document), "multi": False}
    return {"update": change.table.name.coll, "updates": [statement], "bypassDocumentValidation": True}


def too_large_to_replace(change: RowChange) -> bool:
    """Whether the `_id` in the query and the document exceed one statement; an insert contains the `_id` once only."""
    return len(change.key) + len(change.document or b"") > _LARGEST_STATEMENT


def displace_command(change: RowChange) -> tuple[str, CommandBody]:
    return _alone(change, {"delete": change.table.name.coll, "deletes": [_any_of_its_id(change)]})


def _any_of_its_id(change: RowChange) -> CommandBody:
    """Deletes every document of this `_id`: one with another shard key value blocks the new one."""
    return {"q": raw_document(id_alone(change.key)), "limit": 0}


def _inserting(table: TargetTable, filter_: RowQuery, document: bytes) -> CommandBody:
    if holds_zero_time(document):
        upsert = _upsert(*exact_insert(filter_, document, sharded=spread(table)))
        return {"update": table.name.coll, "updates": [upsert], "bypassDocumentValidation": True}
    documents = [raw_document(document)]
    return {"insert": table.name.coll, "documents": documents, "bypassDocumentValidation": True}


def _alone(change: RowChange, command: CommandBody) -> tuple[str, CommandBody]:
    return change.table.name.db, {**command, "ordered": True, "writeConcern": _MAJORITY}


def outcome_of(batch: Batch, reply: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> BulkOutcome:
    """`results` are the documents of a `bulkWrite`'s cursor."""
    errors = [item for item in results if not item["ok"]] if batch.joined else reply.get("writeErrors", [])
    refusals = [refusal_of(error) for error in errors]
    if refusals and _deletes_at_once(batch):
        refusals = [replace(refusals[0], index=at) for at in range(len(batch.changes))]
        return BulkOutcome(done=len(batch.changes), refusals=refusals)
    done = refusals[0].index + 1 if refusals and batch.ordered else len(batch.changes)
    if batch.joined:
        at = [
            item["idx"]
            for item in results
            if item["ok"] and not item["n"] and batch.changes[item["idx"]].type is RowType.UPDATE
        ]
        return BulkOutcome(done=done, refusals=refusals, unmatched=len(at), unmatched_at=at)
    missed = done - len(refusals) - reply["n"] if phase(batch.changes[0]) == 1 else 0
    return BulkOutcome(done=done, refusals=refusals, unmatched=missed)
