"""`Dependence`: how rows of different `_id`s depend on each other at a target. Pure.

    insert, replace, update of a path of a unique key       may take a value that another row has had
    delete, replace, update of a path of a unique key       may free a value for another row

Whether they do is not asked: no values are compared. An update touches a unique key if it changes a path of the key, or of its
`partialFilterExpression`, or a path above or below it, whatever the elements of arrays in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from changefeed.bson_bytes import elements
from changefeed.documents.document import field_names, meet, raw_document

_UPSERT = b"\x08upsert\0"


@dataclass(frozen=True, kw_only=True)
class Dependence:
    """`paths`: those of unique keys, without array positions. None: any path may be one, as in a text index.

    `capped`: the target removes the oldest rows, and shows all in the order of their inserts.
    """

    paths: frozenset[str] | None = frozenset()
    capped: bool = False

    @classmethod
    def of(cls, indexes: Iterable[Mapping[str, Any]], *, capped: bool) -> Dependence:
        paths: set[str] = set()
        for index in indexes:
            if any(isinstance(order, str) for order in index["key"].values()):
                return cls(paths=None, capped=capped)
            paths.update(map(_unnumbered, index["key"]))
            paths.update(map(_unnumbered, _conditions(index.get("partialFilterExpression", {}))))
        return cls(paths=frozenset(paths), capped=capped)

    def touched_by(self, update: bytes) -> bool:
        """Most updates do not even contain the name that the paths begin with. A path that several fields may have counts as one of them."""
        if self.paths is None:
            return True
        if not any(root in update for root in self._roots) and _UPSERT not in update:
            return False
        described = raw_document(update)
        if described.get("upsert") or described.get("disambiguatedPaths"):
            return True
        return _touching(changed_names(update), self.paths)

    @cached_property
    def _roots(self) -> tuple[bytes, ...]:
        return tuple({path.partition(".")[0].encode() for path in self.paths or ()})


def changed_names(update: bytes) -> tuple[str, ...]:
    """Of the fields that an `updateDescription` changes."""
    described = raw_document(update)
    truncated = (each["field"] for each in described.get("truncatedArrays") or ())
    return (*updated_names(update), *(described.get("removedFields") or ()), *truncated)


def updated_names(update: bytes) -> tuple[str, ...]:
    """Of the fields that an `updateDescription` sets."""
    return next((field_names(update, at) for name, _, at, _ in elements(update) if name == b"updatedFields"), ())


def _conditions(expression: Mapping[str, Any]) -> Iterator[str]:
    for name, value in expression.items():
        if name.startswith("$"):
            for each in value if isinstance(value, list) else [value]:
                yield from _conditions(each)
        else:
            yield name


@lru_cache(maxsize=4096)
def _touching(changed: tuple[str, ...], paths: frozenset[str]) -> bool:
    """Cached, because a program's updates name the same few fields again and again."""
    return any(meet(_unnumbered(name), path) for name in changed for path in paths)


def _unnumbered(path: str) -> str:
    """Of `l.0.k`, `l.k`. Of a number alone, the number."""
    first, *rest = path.split(".")
    return ".".join([first, *(part for part in rest if not part.isdigit())])
