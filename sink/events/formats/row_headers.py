"""`RowHeaders`: the headers of rows. What is the same for all changes of a table is made once. Pure."""

from __future__ import annotations

from sink.events.formats.message_format import OP, POS, SCHEMA, TABLE, Headers, V
from sink.events.pos import pos_of
from sink.events.row_message import kept
from sink.row import TargetTable


class RowHeaders:
    def __init__(self) -> None:
        self._made: dict[tuple[TargetTable, str], Headers] = {}

    def of(self, table: TargetTable, op: str, pos: str) -> Headers:
        constant = self._made.get((table, op)) or self._make(table, op)
        return [*constant, (POS, pos.encode())]

    def _make(self, table: TargetTable, op: str) -> Headers:
        headers = [(V, b"1"), (OP, op.encode()), (TABLE, table.id.encode()), (SCHEMA, pos_of(table.version).encode())]
        return kept(self._made, (table, op), headers)
