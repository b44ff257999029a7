"""`DataWriter`: writes messages into data files, one after another, and gives their receipts."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Generic, TypeVar

from changefeed.errors import SluiceError
from sink.files.data_format import DataFormat
from sink.files.manifest import DATA
from sink.files.stores.store import Store
from sink.receipt import Receipt

M = TypeVar("M")


class DataWriter(Generic[M]):
    """For one task's run. An attempt that ends without `finish` leaves files that no manifest names (`leftovers.py`)."""

    def __init__(self, format: DataFormat[M], file_bytes: int, store: Store, epoch: int) -> None:
        """`epoch`: that of the task's node."""
        self._format = format
        self._file_bytes = file_bytes
        self._store = store
        self._folder = f"{DATA}/{epoch}"
        self._attempt = secrets.token_hex(12)
        self._open: _OpenFile[M] | None = None
        self._written: list[Receipt] = []

    def write(self, messages: Iterable[M]) -> None:
        for message in messages:
            if self._open is None:
                name = f"{self._folder}/{self._attempt}-{len(self._written)}.{self._format.suffix}"
                self._open = _OpenFile(self._store, name, self._format)
            self._open.add(message)
            if self._open.size >= self._file_bytes:
                self._end_file()

    def finish(self) -> tuple[Receipt, ...]:
        """Everything is durable. The writer begins anew after it."""
        self._end_file()
        written, self._written, self._attempt = tuple(self._written), [], secrets.token_hex(12)
        return written

    def abandon(self) -> None:
        """What was written since the last `finish` is garbage. What cannot be removed now is removed when the node is gone."""
        garbage = [receipt.name for receipt in self._written]
        if self._open is not None:
            self._open.close()
            garbage.append(self._open.name)
        self._open, self._written = None, []
        with suppress(SluiceError):
            for name in garbage:
                self._store.remove(name)

    def _end_file(self) -> None:
        if self._open is not None:
            self._written.append(self._open.end())
            self._open = None


class _OpenFile(Generic[M]):
    def __init__(self, store: Store, name: str, format: DataFormat[M]) -> None:
        self.name = name
        self._file = store.new(name)
        self._rows = self._crc = self.size = 0
        self._dropped = False
        self._content = format.content(self._store)

    def add(self, message: M) -> None:
        self._rows += 1
        self._content.add(message)

    def end(self) -> Receipt:
        self._content.end()
        self._file.end()
        return Receipt(name=self.name, rows=self._rows, bytes=self.size, crc32=self._crc)

    def close(self) -> None:
        self._dropped = True
        self._file.close()

    def _store(self, stored: bytes) -> None:
        """Some formats write their end when they are thrown away."""
        if self._dropped:
            return
        self._file.write(stored)
        self._crc = zlib.crc32(stored, self._crc)
        self.size += len(stored)
