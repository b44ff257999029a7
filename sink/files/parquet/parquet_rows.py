"""`ParquetRows`: row changes and copied documents as rows of Parquet files. Called for each change."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.cluster_time import ClusterTime
from sink.files.parquet.columns import ParquetRow
from sink.messages.extended_json import NoJson, to_json
from sink.messages.message_key import AFTER_ALL, key_json, pos_of
from sink.messages.row_message import COPIED, OPS, OfTable, event_pos, update_body
from sink.messages.shaped_json import ShapedJson
from sink.row import RowChange, RowDetails, TargetTable

_NO_DETAILS = RowDetails()
_NO_TRANSACTION = None, None
_new = tuple.__new__


class ParquetRows:
    def __init__(self) -> None:
        self._of = OfTable(_made)

    def change(self, change: RowChange) -> ParquetRow:
        table, type_, key, document, update, time, _, details = change
        pos = event_pos(change)
        body = update_body(update) if update is not None else None
        if details is None:
            return self._row(table, OPS[type_], pos, time, key, document, body)
        after = details.after if document is None else document
        return self._row(table, OPS[type_], pos, time, key, after, body, details)

    def copied(self, table: TargetTable, document: bytes, key: bytes, read_ts: ClusterTime) -> ParquetRow:
        time = read_ts.to_int()
        return self._row(table, COPIED, f"{time:016X}{AFTER_ALL}", time, key, document, None)

    def _row(
        self,
        table: TargetTable,
        op: str,
        pos: str,
        time: int,
        key: bytes,
        after: bytes | None,
        update: bytes | None,
        details: RowDetails = _NO_DETAILS,
    ) -> ParquetRow:
        """In the order of `ParquetRow`."""
        wall, transaction, before, _, images = details
        session, number = transaction or _NO_TRANSACTION
        ns, version, json = self._of(table)
        times = (time >> 32) * 1000, time & 0xFFFFFFFF, wall
        documents = _key_json(key), key, _json(after, json), after, _json(update), update, _json(before, json), before
        return _new(ParquetRow, (pos, op, ns, table.id, version, *times, session, number, *documents, images))


def _key_json(key: bytes) -> str | None:
    try:
        return key_json(key)
    except NoJson:
        return None


def _json(document: bytes | None, json: Callable[[bytes], str] = to_json) -> str | None:
    """Null where there is none: the column with the BSON has the document."""
    if document is None:
        return None
    try:
        return json(document)
    except NoJson:
        return None


def _made(table: TargetTable) -> tuple[str, str, Callable[[bytes], str]]:
    """Its name downstream, where this version begins, and what writes its documents."""
    return str(table.name), pos_of(table.version), ShapedJson().text
