"""`ParquetRows`: row changes and copied documents as rows of Parquet files. Called for each change."""

from __future__ import annotations

from changefeed.cluster_time import ClusterTime
from sink.events.extended_json import NoJson, to_json
from sink.events.pos import AFTER_ALL, OF_EVENT, pos_of
from sink.events.row_message import COPIED, OPS
from sink.events.update_body import update_body
from sink.files.parquet.columns import ParquetRow
from sink.row import RowChange, RowDetails, TargetTable

_NO_DETAILS = RowDetails()


class ParquetRows:
    def __init__(self) -> None:
        self._versions: dict[TargetTable, str] = {}

    def change(self, change: RowChange) -> ParquetRow:
        table, type_, key, document, update, time, token, details = change
        pos = f"{time:016X}{OF_EVENT}{token.decode()}"
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
        session, number = details.transaction or (None, None)
        return ParquetRow(
            pos=pos,
            op=op,
            ns=str(table.name),
            id=table.id,
            schema=self._version(table),
            ts=(time >> 32) * 1000,
            increment=time & 0xFFFFFFFF,
            wall=details.wall_ms,
            txn_session=session,
            txn_number=number,
            key=_json(key),
            key_bson=key,
            after=_json(after),
            after_bson=after,
            update=_json(update),
            update_bson=update,
            before=_json(details.before),
            before_bson=details.before,
            images=details.images,
        )

    def _version(self, table: TargetTable) -> str:
        version = self._versions.get(table)
        if version is None:
            version = self._versions[table] = pos_of(table.version)
        return version


def _json(document: bytes | None) -> str | None:
    """Null where there is none: the column with the BSON has the document."""
    if document is None:
        return None
    try:
        return to_json(document)
    except NoJson:
        return None
