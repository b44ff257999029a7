"""`Router`: which bucket a row change goes to, so that changes that depend on each other are applied in order. Pure.

    table                                          its rows go to
    one document does not depend on another        the bucket of hash(table, _id)
    unique secondary index, capped, collation      one bucket, all of them: the bucket of hash(table)
    the same, but order_by: id                     the bucket of hash(table, _id): the user takes the risk
    any, with order_by: table                      one bucket

Where a table's changes carry the old unique values (pre-images), `Components` divides it further: rows that share a unique
value or an `_id` within a window form one component, and a component goes to one bucket.

The hash is crc32, the same in every process and version, so that a slice read elsewhere or again goes the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from changefeed.configuration import OrderBy
from changefeed.row_key import row_key
from changefeed.table import TableId, TableKind, TableSchema


def dependent(schema: TableSchema) -> bool:
    """Whether rows of different `_id`s depend on each other, or `_id`s of different bytes may be one."""
    options = schema.options.decode()
    if schema.kind is TableKind.TIMESERIES or options.get("capped") or _folds_case(options.get("collation")):
        return True
    return any(_unique(index.decode()) for index in schema.indexes)


def _unique(index: dict[str, Any]) -> bool:
    return bool(index.get("unique")) and list(index["key"]) != ["_id"]


def _folds_case(collation: dict[str, Any] | None) -> bool:
    """Any collation but the binary one may take different strings for equal."""
    return collation is not None and collation.get("locale", "simple") != "simple"


@dataclass(frozen=True, slots=True)
class TableRoute:
    """How one version of a table is routed; made once for each, used for each event."""

    seed: int
    whole: bool

    @classmethod
    def of(cls, schema: TableSchema, order_by: OrderBy) -> TableRoute:
        whole = order_by is OrderBy.TABLE or (order_by is OrderBy.AUTO and dependent(schema))
        return cls(table_seed(schema.id), whole)

    def bucket(self, document_key: bytes, buckets: int) -> int:
        return (self.seed if self.whole else crc32(row_key(document_key), self.seed)) % buckets


def table_seed(table: TableId) -> int:
    return crc32(table.encode())


class Components:
    """Which of a window's changes belong together, given for each of them all the values it takes or gives up.

    A value is any bytes that identify it: the row key, and each unique index's name with the key's values before and after.

        1: u one -> aside      {id 1, one, aside}      component 0
        2: u two -> one        {id 2, two, one}        component 0
        3: u six -> seven      {id 3, six, seven}      component 2
    """

    def __init__(self, changes: Iterable[Iterable[bytes]]) -> None:
        self._parents: list[int] = []
        owners: dict[bytes, int] = {}
        for number, values in enumerate(changes):
            self._parents.append(number)
            for value in values:
                self._join(number, owners.setdefault(value, number))

    def of(self, number: int) -> int:
        """The first change of the component that a change belongs to."""
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self.of(one), self.of(other)))
        self._parents[second] = first

    def buckets(self, seed: int, document_keys: Sequence[bytes], buckets: int) -> list[int]:
        """A component goes where its first change would."""
        return [crc32(row_key(document_keys[self.of(n)]), seed) % buckets for n in range(len(self._parents))]
