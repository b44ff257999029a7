"""`normalised_index`: an index specification as a user would write it, whether it comes from listIndexes, an event or the oplog. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from changefeed.documents.document import Document, key_as_written

_FIRST = ("v", "key", "name")
_NOT_OURS = frozenset({"ns", "buildUUID", "background"})


def normalised_index(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`v`, `key` and `name` first, then the options by name, so that equal indexes are equal bytes.

    Left out are `ns`, the namespace that servers up to 4.2 repeat, and `background`, which has no meaning since 4.2.
    """
    fields = {**spec, "key": key_as_written(spec)} if "key" in spec else dict(spec)
    names = [name for name in _FIRST if name in fields]
    names += sorted(name for name in fields if name not in _FIRST and name not in _NOT_OURS)
    return {name: fields[name] for name in names}


def index_document(spec: Mapping[str, Any]) -> Document:
    return Document.of(normalised_index(spec))


def indexes_description(specs: Iterable[Mapping[str, Any]], *, presumed: Sequence[str] = ()) -> Document:
    """The `operationDescription` of createIndexes and dropIndexes. `presumed`: the names of those that the table may have had before."""
    indexes = {"indexes": [normalised_index(spec) for spec in specs]}
    return Document.of(indexes | ({"presumed": [*presumed]} if presumed else {}))
