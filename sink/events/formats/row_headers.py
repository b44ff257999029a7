"""`RowHeaders`: the headers of rows. What is the same for all changes of a table is made once. Pure."""

from __future__ import annotations

from sink.events.formats.message_format import OP, POS, SCHEMA, TABLE, Headers, V
from sink.events.of_table import OfTable
from sink.events.pos import pos_of
from sink.events.row_message import COPIED, OPS
from sink.row import TargetTable


class RowHeaders:
    def __init__(self) -> None:
        self._of = OfTable(_made)

    def of(self, table: TargetTable, op: str, pos: str) -> Headers:
        of = self._of
        made = of.last if table is of.table else of(table)
        return [*made[op], (POS, pos.encode())]


def _made(table: TargetTable) -> dict[str, Headers]:
    about = [(TABLE, table.id.encode()), (SCHEMA, pos_of(table.version).encode())]
    return {op: [(V, b"1"), (OP, op.encode()), *about] for op in (*OPS.values(), COPIED)}
