"""Servers take texts that are no UTF-8. BSON has them as they are, and JSON has none of them."""

from __future__ import annotations

import pytest

from changefeed.config.sinks.message_options import FormatName, MessageEncoding, MessageOptions
from changefeed.event import RowType
from sink.messages.formats import message_format
from sink.messages.message_format import MessageFormat
from sink.row import RowChange
from sluice_client.extended_json import NoJson
from tests.unit.sink.messages.changes import AT, TABLE, change, no_utf8

_BAD = b"\xff\xfe"
_UPDATE = no_utf8({"updatedFields": {"text": "??", "n": 1}, "removedFields": ["n"], "truncatedArrays": []})
_CHANGES = [
    change(RowType.INSERT, 7)._replace(document=no_utf8({"_id": 7, "text": "??"})),
    change(RowType.UPDATE, 7)._replace(update=_UPDATE),
]
by_change = pytest.mark.parametrize("changed", _CHANGES, ids=lambda it: it.type)


def _format(name: FormatName, encoding: MessageEncoding) -> MessageFormat:
    return message_format("orders", "shop", MessageOptions(format=name, encoding=encoding))


@by_change
@pytest.mark.parametrize("name", FormatName)
def test_json_refuses_them(name: FormatName, changed: RowChange) -> None:
    with pytest.raises(NoJson, match="not UTF-8"):
        _format(name, MessageEncoding.JSON).change(changed)


@by_change
@pytest.mark.parametrize("name", [FormatName.SLUICE, FormatName.MONGODB])
def test_bson_has_them_as_they_are(name: FormatName, changed: RowChange) -> None:
    (message,) = _format(name, MessageEncoding.BSON).change(changed)
    assert _BAD in (message.value or b"")


@pytest.mark.parametrize("name", FormatName)
def test_so_with_copied_documents(name: FormatName) -> None:
    document, key = no_utf8({"_id": 7, "text": "??"}), change(RowType.INSERT, 7).key
    with pytest.raises(NoJson, match="not UTF-8"):
        _format(name, MessageEncoding.JSON).copied(TABLE, document, key, AT.ts)
