"""`SchemaBase`: one version of each of very many tables, packed. Pure.

A changefeed of 100,000 tables changes a few of them a day, so nearly all of its schemas are in one base, which is built once, shared, and
never changed. Tables differ in id and name, and seldom in anything else: what they have in common is kept once. A table costs some 100
bytes instead of 500, and no object that a garbage collector would visit or that pickling would cost time for.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from changefeed.table import TableId, TableName, TableSchema


@dataclass(frozen=True, slots=True)
class PackedTexts:
    """A text costs its UTF-8 bytes and four more. The order of UTF-8 is that of Python's strings."""

    _bytes: bytes
    _ends: array[int]

    @classmethod
    def of(cls, texts: Iterable[str]) -> Self:
        encoded = [text.encode() for text in sorted(texts)]
        return cls(b"".join(encoded), array("I", accumulate(map(len, encoded))))

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[str]:
        begin = 0
        for end in self._ends:
            yield self._bytes[begin:end].decode()
            begin = end

    def __getitem__(self, place: int) -> str:
        return self._encoded(place).decode()

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and self.find(text) is not None

    def find(self, text: str) -> int | None:
        """The place of a text."""
        place, wanted = self.first(text), text.encode()
        return place if place < len(self) and self._encoded(place) == wanted else None

    def first(self, least: str) -> int:
        """The place of the first text that is not below `least`."""
        return bisect_left(range(len(self)), least.encode(), key=self._encoded)

    def _encoded(self, place: int) -> bytes:
        return self._bytes[self._ends[place - 1] if place else 0 : self._ends[place]]


NO_TEXTS = PackedTexts.of(())


@dataclass(frozen=True, slots=True)
class SchemaBase:
    """No two tables have the same id or name."""

    ids: PackedTexts
    names: PackedTexts
    _name_of: array[int]
    """The place of a table's name, by the place of its id."""
    _id_of: array[int]
    _form_of: array[int]
    _forms: tuple[TableSchema, ...]
    """Schemas that differ in more than id and name."""

    @classmethod
    def of(cls, schemas: Iterable[TableSchema]) -> Self:
        return cls._built((schema.id, str(schema.name), schema) for schema in schemas)

    def with_changes(self, gone: Callable[[TableId], bool], come: Iterable[TableSchema]) -> Self:
        """Without the tables that are `gone`, and with those that have `come`."""
        return self._built(
            (
                *((id, name, form) for id, name, form in self._rows() if not gone(id)),
                *((schema.id, str(schema.name), schema) for schema in come),
            )
        )

    @classmethod
    def _built(cls, rows: Iterable[tuple[TableId, str, TableSchema]]) -> Self:
        ordered = sorted(rows, key=lambda row: row[0])
        forms: dict[object, int] = {}
        known: dict[int, int] = {}
        first: list[TableSchema] = []
        form_of = array("I")
        for _, _, schema in ordered:
            number = known.get(id(schema))
            if number is None:
                number = forms.setdefault(_form(schema), len(first))
                if number == len(first):
                    first.append(schema)
                known[id(schema)] = number
            form_of.append(number)
        by_name = sorted(range(len(ordered)), key=lambda place: ordered[place][1])
        name_of = array("I", bytes(4 * len(ordered)))
        for name, place in enumerate(by_name):
            name_of[place] = name
        return cls(
            PackedTexts.of(id for id, _, _ in ordered),
            PackedTexts.of(name for _, name, _ in ordered),
            name_of,
            array("I", by_name),
            form_of,
            tuple(first),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def get(self, table: TableId) -> TableSchema | None:
        place = self.ids.find(table)
        return None if place is None else self._at(place)

    def named(self, name: TableName) -> TableSchema | None:
        place = self.names.find(str(name))
        return None if place is None else self._at(self._id_of[place])

    def names_in(self, db: str) -> Iterator[TableName]:
        prefix = f"{db}."
        for place in range(self.names.first(prefix), len(self)):
            name = self.names[place]
            if not name.startswith(prefix):
                return
            yield TableName.parse(name)

    def all(self) -> Iterator[TableSchema]:
        """In the order of their ids."""
        return (_schema(table, name, form) for table, name, form in self._rows())

    def like(self, test: Callable[[TableSchema], bool]) -> Iterator[TableId]:
        """The tables that pass a test which does not look at id and name: it is asked once for all tables that are alike."""
        good = {number for number, form in enumerate(self._forms) if test(form)}
        if good:
            yield from (TableId(self.ids[place]) for place, form in enumerate(self._form_of) if form in good)

    def _at(self, place: int) -> TableSchema:
        name, form = self.names[self._name_of[place]], self._forms[self._form_of[place]]
        return _schema(TableId(self.ids[place]), name, form)

    def _rows(self) -> Iterator[tuple[TableId, str, TableSchema]]:
        names = list(self.names)
        for table, name, form in zip(self.ids, self._name_of, self._form_of, strict=True):
            yield TableId(table), names[name], self._forms[form]


def _schema(table: TableId, name: str, form: TableSchema) -> TableSchema:
    return TableSchema(
        id=table,
        name=TableName.parse(name),
        kind=form.kind,
        options=form.options,
        indexes=form.indexes,
        shard_key=form.shard_key,
        uuids=form.uuids,
        valid_from=form.valid_from,
        beside=form.beside,
        copied=form.copied,
    )


def _form(schema: TableSchema) -> object:
    definition = schema.kind, schema.options, schema.indexes, schema.shard_key, schema.uuids
    return *definition, schema.valid_from, schema.beside, schema.copied


NO_BASE = SchemaBase.of(())
