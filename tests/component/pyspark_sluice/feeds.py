"""A feed whose tables begin again, for tests of Spark's reader."""

from __future__ import annotations

from changefeed.documents.document import Document
from changefeed.event import DdlType
from changefeed.table import TableId
from sink.ddl import CreateTable, DropTables
from tests.component.sink.messages import Messages, filed
from tests.component.sink.vocabulary import A, B, described, insert, moment, named

_C = TableId("cc" * 16)
STATE = [("shop.a", 2), ("shop.a", 8), ("shop.b", 5), ("shop.b", 9)]
"""What its tables have in the end."""


def begun_again(uri: str) -> Messages:
    """A is copied, copied anew twice, the first of which is interrupted, and dropped; another table gets its name. Rows of B are between them."""
    messages = filed(uri)
    first = described(A, copied=True)
    messages.claim(first, described(B, "b"))
    messages.copy(100, 102, [{"_id": key, "at": 102} for key in range(1, 4)], tables=(first,))
    messages.window(100, 110, [insert(A, 103, 4), insert(B, 104, 9, "b")], first, described(B, "b"))
    messages.copied(100, 105)
    messages.mark(108)
    messages.begin_again(110)
    messages.copy(110, 112, [{"_id": key, "at": 112} for key in (2, 5)], tables=(described(A, at=moment(110)),))
    messages.ddl.emptied(A, named("a"), moment(115))
    last = described(A, at=moment(115), copied=True)
    messages.copy(115, 117, [{"_id": key, "at": 117} for key in (2, 6)], tables=(last,))
    messages.window(110, 130, [insert(B, 121, 5, "b")], described(B, "b"))
    messages.window(115, 130, [insert(A, 119, 7)], last)
    messages.copied(115, 118)
    messages.mark(120)
    messages.apply(DropTables(names=(named("a"),)), DdlType.DROP, 130)
    messages.apply(CreateTable(name=named("a"), options=Document.of({})), DdlType.CREATE, 131, _C)
    created = moment(131, 0)
    messages.window(131, 140, [insert(_C, 133, 2), insert(_C, 134, 8)], described(_C, "a", created), since=created)
    messages.mark(140)
    return messages
