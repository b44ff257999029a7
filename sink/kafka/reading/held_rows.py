"""`HeldRows`: rows that were read and not shown yet, each once, in the order of their places. In a temporary file, once they are many."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MANY = 200_000
_CACHE_KIB = 64 << 10
_TABLE = """
    CREATE TABLE held (
        at TEXT NOT NULL, id TEXT NOT NULL, key BLOB NOT NULL, copied INTEGER NOT NULL, version TEXT NOT NULL, place TEXT NOT NULL,
        start INTEGER NOT NULL, raw BLOB NOT NULL,
        PRIMARY KEY (at, id, key, version)
    ) WITHOUT ROWID
"""


class HeldRow(NamedTuple):
    """`version`: of a copied document, where that of its table begins: two copies may have read it at one time. `partition`, `offset`: where its first copy was read. `key`: that of its message."""

    pos: str
    table: str
    key: bytes
    copied: bool
    version: str
    partition: str
    offset: int
    raw: bytes


class HeldRows:
    """For one thread."""

    def __init__(self) -> None:
        self._rows = sqlite3.connect("", isolation_level=None)
        self._rows.execute("PRAGMA journal_mode=OFF")
        self._rows.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        self._rows.execute(_TABLE)
        self._count = 0

    def add(self, rows: Iterable[HeldRow]) -> None:
        """A repeat, with the pos, the key and the version of one that is held, is dropped."""
        added = self._rows.executemany("INSERT OR IGNORE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._count += max(0, added.rowcount)

    @property
    def many(self) -> bool:
        """Enough for a round."""
        return self._count >= MANY

    def before(self, pos: str) -> Iterator[HeldRow]:
        """In the order of pos and table."""
        found = self._rows.execute("SELECT * FROM held WHERE at < ? ORDER BY at, id, key", (pos,))
        return map(HeldRow._make, found)

    def forget(self, pos: str, copied_pos: str, later: dict[str, tuple[str, str]]) -> None:
        """Changes before `pos` and copied documents before `copied_pos`; of the tables in `later`, before their own."""
        self._rows.execute("CREATE TEMP TABLE IF NOT EXISTS later (id TEXT PRIMARY KEY, at TEXT, copied TEXT)")
        self._rows.execute("DELETE FROM later")
        self._rows.executemany("INSERT INTO later VALUES (?, ?, ?)", ((id, *own) for id, own in later.items()))
        forgotten = self._rows.execute(
            "DELETE FROM held WHERE at < ? AND at < coalesce("
            "(SELECT CASE WHEN held.copied THEN later.copied ELSE later.at END FROM later WHERE later.id = held.id), "
            "CASE WHEN copied THEN ? ELSE ? END)",
            (max(pos, copied_pos), copied_pos, pos),
        )
        self._count -= forgotten.rowcount

    def first_offsets(self) -> dict[str, int]:
        """Of each partition of which rows are held."""
        return dict(self._rows.execute("SELECT place, min(start) FROM held GROUP BY place").fetchall())

    def close(self) -> None:
        self._rows.close()
