"""`DataWriter`: writes messages into data files, one after another, and gives their receipts."""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable
from contextlib import suppress

from changefeed.config.sinks.file_sink import FileSinkOptions
from changefeed.config.sinks.message_options import MessageEncoding
from changefeed.errors import SluiceError
from sink.files.compression import SUFFIXES, Compressor, compressor
from sink.files.manifest import DATA
from sink.files.stores.store import Store
from sink.receipt import Receipt

_BUFFER_BYTES = 1 << 20


class DataWriter:
    """For one task's run. An attempt that ends without `finish` leaves files that no manifest names (`leftovers.py`)."""

    def __init__(self, options: FileSinkOptions, store: Store, epoch: int) -> None:
        """`epoch`: that of the task's node."""
        self._options = options
        self._store = store
        self._folder = f"{DATA}/{epoch}"
        self._attempt = secrets.token_hex(12)
        self._open: _OpenFile | None = None
        self._written: list[Receipt] = []

    def write(self, messages: Iterable[bytes]) -> None:
        end = b"\n" if self._options.format is MessageEncoding.JSON else b""
        for message in messages:
            if self._open is None:
                self._open = self._next()
            self._open.add(message + end)
            if self._open.size >= self._options.file_bytes:
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

    def _next(self) -> _OpenFile:
        suffix = SUFFIXES[self._options.compression]
        name = f"{self._folder}/{self._attempt}-{len(self._written)}.{self._options.format}{suffix}"
        return _OpenFile(self._store, name, compressor(self._options.compression))

    def _end_file(self) -> None:
        if self._open is not None:
            self._written.append(self._open.end())
            self._open = None


class _OpenFile:
    def __init__(self, store: Store, name: str, compressor: Compressor | None) -> None:
        self.name = name
        self._file = store.new(name)
        self._compressor = compressor
        self._buffer = bytearray()
        self._rows = self._crc = self.size = 0

    def add(self, message: bytes) -> None:
        self._rows += 1
        self._buffer += message
        if len(self._buffer) >= _BUFFER_BYTES:
            self._pass_on()

    def end(self) -> Receipt:
        self._pass_on()
        if self._compressor is not None:
            self._store(self._compressor.flush())
        self._file.end()
        return Receipt(name=self.name, rows=self._rows, bytes=self.size, crc32=self._crc)

    def close(self) -> None:
        self._file.close()

    def _pass_on(self) -> None:
        buffer, self._buffer = bytes(self._buffer), bytearray()
        self._store(buffer if self._compressor is None else self._compressor.compress(buffer))

    def _store(self, content: bytes) -> None:
        self._file.write(content)
        self._crc = zlib.crc32(content, self._crc)
        self.size += len(content)
