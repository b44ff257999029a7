"""`RowRewrite`: writes one row by itself, where a statement among others cannot do it.

**An update that no statement can express**: something too deep, too large, or several changes of a row at once. The target's row is read, edited here (`statements/document_edit.py`) and replaced in one transaction, so nobody changes it in between. It is not
the source's row of now, which is from the future. Nothing but the update is applied, so a replay finds what any other update would.

A capped collection and a standalone server have no such transaction. There the row is replaced if it still equals what was read.

**A document that cannot be changed into the new one**, only removed: it is displaced, or removed and inserted in one transaction (`renew`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import bson
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.documents.document import raw_document
from changefeed.documents.row_key import id_alone
from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.event import RowType
from sink.mongodb.commander import Commander, Send
from sink.mongodb.refusal import DOLLAR_NAME, IMMUTABLE, NO_TRANSACTION, RefusedRow, told
from sink.mongodb.rows.batch_sender import BatchSender
from sink.mongodb.rows.bulk_command import (
    CommandBody,
    displace_command,
    document_command,
    exchange_commands,
    net_command,
    renewal_commands,
    rewrite_alone_command,
    rewrite_command,
    too_large_to_replace,
)
from sink.mongodb.rows.row_place import own_filter
from sink.mongodb.rows.statements.document_edit import changed, fits
from sink.mongodb.rows.statements.exact_insert import holds_zero_time
from sink.mongodb.target_errors import refusal_in, refused_with
from sink.row import RowChange

_NOTHING = bson.encode({})


class Rewritten(NamedTuple):
    before: bytes | None
    after: bytes | None
    """None if nothing is to be written."""
    fits: bool
    """Whether all of the update fitted the row."""
    again: bool = False
    """It may have been applied before."""

    @property
    def there(self) -> bool:
        return self.before is not None or self.after is not None


class RowRewrite:
    def __init__(self, commander: Commander, sender: BatchSender) -> None:
        self._commander = commander
        self._sender = sender

    def apply(self, changes: Sequence[RowChange], *, viable: bool) -> Rewritten:
        """Several changes are those of one row. `viable`: of a row of another shape, the parts that fit are applied. Raises `RowRejected` for a row that
        the target refuses.
        """
        try:
            return self._together(changes, viable=viable)
        except RowRejected as error:
            refusal = refusal_in(error)
            if refusal is not None and refusal.code == DOLLAR_NAME:
                return self._together(changes, viable=viable, inserts=True)
            if refusal is not None and refusal.code in NO_TRANSACTION:
                return self._unless_changed(changes, viable=viable)
            raise

    def _together(self, changes: Sequence[RowChange], *, viable: bool, inserts: bool = False) -> Rewritten:
        change = changes[-1]
        rows: list[Rewritten] = []

        def rewrite(send: Send) -> None:
            database, find = document_command(change)
            row = _edited(changes, send(database, find)["cursor"]["firstBatch"], viable=viable)
            rows.append(row)
            for command in _commands(change, row, inserts=inserts):
                send(database, command)

        self._commander.together(rewrite, str(change))
        return rows[-1]._replace(again=len(rows) > 1)

    def _unless_changed(self, changes: Sequence[RowChange], *, viable: bool) -> Rewritten:
        change, attempt = changes[-1], 0
        while True:
            found = self._commander.found(document_command(change), f"reading the row of {change}")
            row = _edited(changes, found, viable=viable)
            if row.after is None:
                return row
            outcome = self._sender.send_alone(change, rewrite_alone_command(change, row.after, if_still=row.before))
            for refusal in outcome.refusals:
                raise RowRejected(told(change, refusal)) from OperationFailure(refusal.message, refusal.code)
            if not outcome.unmatched:
                return row
            self._commander.wait(attempt, SinkUnavailable(f"{change}: another client changes its row again and again"))
            attempt += 1

    def displace(self, change: RowChange) -> RefusedRow | None:
        """Writes a whole document in the place of one that cannot be changed into it."""
        if holds_zero_time(change.document) or too_large_to_replace(change):
            return self.renew(change)
        self._sender.send_alone(change, displace_command(change))
        return self._replace(change, renewable=True)

    def renew(self, change: RowChange) -> RefusedRow | None:
        """Removes and inserts the document in one transaction."""
        try:
            self._commander.together(partial(_renewed, change), str(change))
        except RowRejected as error:
            refusal = refusal_in(error)
            if refusal is not None and refusal.code in NO_TRANSACTION:
                return self._replace(change)
            return refused_with(change, error)
        return None

    def _replace(self, change: RowChange, *, renewable: bool = False) -> RefusedRow | None:
        """`renewable`: under a collation, a key finds the row of another spelling, and a document of that spelling can only be inserted."""
        for refusal in self._sender.send_alone(change, net_command(change)).refusals:
            if renewable and refusal.code == IMMUTABLE:
                return self.renew(change)
            return RefusedRow(
                told(change, refusal), refusal if refusal.duplicate and not refusal.duplicate_id else None
            )
        return None


def _renewed(change: RowChange, send: Send) -> None:
    for command in renewal_commands(change):
        send(change.table.name.db, command)


def _edited(changes: Sequence[RowChange], found: Sequence[RawBSONDocument], *, viable: bool) -> Rewritten:
    before = bytes(found[0].raw) if found else None
    base, update = before, changes[-1].update or _NOTHING
    if base is None and raw_document(update).get("upsert"):
        base = id_alone(changes[-1].key)
    all_of_it = base is not None and (len(changes) > 1 or fits(base, update))
    if not (all_of_it or viable):
        return Rewritten(before, None, fits=False)
    return Rewritten(before, changed(base, [(change.document, change.update) for change in changes]), all_of_it)


def _commands(change: RowChange, row: Rewritten, *, inserts: bool) -> list[CommandBody]:
    if row.after is None or row.after == row.before:
        return []
    here, after = own_filter(change), row.after
    whole = change._replace(type=RowType.REPLACE, document=after, update=None)
    if row.before is None:
        return exchange_commands(change.table, [], [(here, after)])
    if inserts or holds_zero_time(after) or too_large_to_replace(whole):
        return exchange_commands(change.table, [here], [(here, after)])
    return [rewrite_command(change, after)]
