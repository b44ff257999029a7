"""`RowRewrite`: applies an update that no statement can express, because it changes something too deep or is too large.

The target's row is read, edited here (`statements/document_edit.py`) and replaced in one transaction, so nobody changes it in between. It is not
the source's row of now, which is from the future. Nothing but the update is applied, so a replay finds what any other update would.

A capped collection and a standalone server have no such transaction. There the row is replaced if it still equals what was read.
"""

from __future__ import annotations

from typing import NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from changefeed.errors import RowRejected, SinkUnavailable
from changefeed.event import RowType
from sink.mongodb.commander import Commander, Send
from sink.mongodb.rows.batch_sender import BatchSender
from sink.mongodb.rows.bulk_command import (
    CommandBody,
    document_command,
    exchange_commands,
    own_filter,
    rewrite_command,
    too_large_to_replace,
)
from sink.mongodb.rows.refusals import DOLLAR_NAME, NO_TRANSACTION, refusal_in, told
from sink.mongodb.rows.statements.document_edit import edited, fits
from sink.mongodb.rows.statements.exact_insert import holds_zero_time
from sink.row import RowChange

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS)


class Rewritten(NamedTuple):
    """What became of an update. `again`: it may have been applied before."""

    found: bool
    fits: bool
    again: bool = False


class _Row(NamedTuple):
    before: bytes | None
    after: bytes | None
    """None if the update is not to be applied."""
    fits: bool


class RowRewrite:
    def __init__(self, commander: Commander, sender: BatchSender) -> None:
        self._commander = commander
        self._sender = sender

    def apply(self, change: RowChange, *, viable: bool) -> Rewritten:
        """`viable`: of a row of another shape, the parts that fit are applied. Raises `RowRejected` for a row that the target refuses."""
        try:
            return self._together(change, viable=viable)
        except RowRejected as error:
            refusal = refusal_in(error)
            if refusal is not None and refusal.code == DOLLAR_NAME:
                return self._together(change, viable=viable, inserts=True)
            if refusal is not None and refusal.code in NO_TRANSACTION:
                return self._unless_changed(change, viable=viable)
            raise

    def _together(self, change: RowChange, *, viable: bool, inserts: bool = False) -> Rewritten:
        rows: list[_Row] = []

        def rewrite(send: Send) -> None:
            database, find = document_command(change)
            row = _edited(change, send(database, find)["cursor"]["firstBatch"], viable=viable)
            rows.append(row)
            for command in _commands(change, row, inserts=inserts):
                send(database, command)

        self._commander.together(rewrite, str(change))
        return Rewritten(rows[-1].before is not None, rows[-1].fits, again=len(rows) > 1)

    def _unless_changed(self, change: RowChange, *, viable: bool) -> Rewritten:
        attempt = 0
        while True:
            found = self._commander.found(document_command(change), f"reading the row of {change}")
            row = _edited(change, found, viable=viable)
            if row.before is None or row.after is None:
                return Rewritten(row.before is not None, row.fits)
            command = rewrite_command(change, row.after, if_still=row.before)
            outcome = self._sender.send_alone(change, (change.table.name.db, command))
            for refusal in outcome.refusals:
                raise RowRejected(told(change, refusal)) from OperationFailure(refusal.message, refusal.code)
            if not outcome.unmatched:
                return Rewritten(True, row.fits)
            self._commander.wait(attempt, SinkUnavailable(f"{change}: another client changes its row again and again"))
            attempt += 1


def _edited(change: RowChange, found: list[RawBSONDocument], *, viable: bool) -> _Row:
    update = change.update or b""
    if not found:
        made = _made(change) if RawBSONDocument(update, _RAW).get("upsert") else None
        return _Row(None, made, made is not None)
    before = bytes(found[0].raw)
    all_of_it = fits(before, update)
    return _Row(before, edited(before, [update]) if all_of_it or viable else None, all_of_it)


def _made(change: RowChange) -> bytes:
    """What an update in a user's `applyOps` makes of a missing document."""
    key = RawBSONDocument(change.key, _RAW)["_id"]
    return edited(bson.encode({"_id": key}, codec_options=_RAW), [change.update or b""])


def _commands(change: RowChange, row: _Row, *, inserts: bool) -> list[CommandBody]:
    if row.after is None or row.after == row.before:
        return []
    here, after = own_filter(change), row.after
    whole = change._replace(type=RowType.REPLACE, document=after, update=None)
    if row.before is None:
        return exchange_commands(change.table, [], [(here, after)])
    if inserts or holds_zero_time(after) or too_large_to_replace(whole):
        return exchange_commands(change.table, [here], [(here, after)])
    return [rewrite_command(change, after)]
