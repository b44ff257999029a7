"""Documents with two fields of one name, which BSON allows and MongoDB does not support: nothing of theirs is lost, and no server ends."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from sink.mongodb.rows.row_writer import MongoRowWriter
from tests.component.sink.mongodb.rows.test_deep_updates import logged
from tests.component.sink.mongodb.rows.written_rows import Rows, documents_of, table_of


def _document(*fields: tuple[str, Any]) -> RawBSONDocument:
    body = b"".join(bson.encode({name: value})[4:-1] for name, value in fields)
    return RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")


_INSIDE = _document(("x", 1), ("x", 2))
_DOUBLED = _document(("_id", 1), ("a", 1), ("a", 2), ("b", 0), ("s", _INSIDE), ("l", [1, 2, 3]))

_UPDATES: list[Any] = [
    {"$set": {"b": 5}},
    {"$set": {"a": 5}},
    {"$set": {"new": 5}},
    {"$set": {"a": 5, "new": 5}},
    {"$set": {"s.x": 5, "s.new": 5}},
    {"$set": {"z": 1}, "$unset": {"b": 1}},
    {"$push": {"l": {"$each": [], "$slice": 1}}, "$set": {"new": 1}},
    [{"$set": {"z": 1, "new": 1}}],
]


@pytest.mark.parametrize("update", _UPDATES, ids=str)
def test_an_update_of_such_a_document_is_exact_however_often_it_is_delivered(
    source: Rows, target: Rows, writer: MongoRowWriter, update: Any
) -> None:
    """A pipeline would lose one of the two. Worse, from 5.0 on a server ends that has to log what a pipeline has done to them."""

    def work(rows: Rows) -> None:
        rows.insert_one(_DOUBLED)
        rows.update_one({"_id": 1}, update)

    changes = logged(source, work, table_of(source))
    expected = documents_of(source)
    assert expected[0].count(b"\x10a\0") == 2
    for replay in (False, True, True):
        for change in changes:
            writer.write([change], replay=replay)
        assert documents_of(target) == expected
    writer.write(changes[1:], replay=True)
    assert documents_of(target) == expected
