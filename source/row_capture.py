"""`RowCapture`: the reader of rows in one capture, and the functions that parse its raw events."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from changefeed.position import Window
from changefeed.source_history import SourceHistory
from source.oplog import row_entry
from source.oplog.row_reader import OplogReader
from source.raw.raw_batch import RawBatch
from source.raw.row_about import RowAbout
from source.raw.row_header import Header
from source.stream.events import raw_event
from source.stream.window_reader import WindowReader


class RowReader(Protocol):
    def read(self, window: Window) -> Generator[RawBatch, None, None]:
        """The raw events of the window in order, each once. It ends when the window is proven complete."""
        ...

    def took(self, taken: int, read: int) -> None:
        """Report that `taken` of `read` events were wanted."""


class RowCapture(Protocol):
    @property
    def scan(self) -> Callable[[bytes], Header]: ...

    @property
    def update_of(self) -> Callable[[bytes, Header], bytes]:
        """The `updateDescription` of an update."""

    @property
    def about_of(self) -> Callable[[bytes, Header], RowAbout]: ...

    def reader(self, history: SourceHistory | None) -> RowReader:
        """`history`: where the windows that are to be read stand at the shards. Only a sharded source needs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneReader:
    """Whose history is in one place."""

    rows: RowReader
    scan: Callable[[bytes], Header]
    update_of: Callable[[bytes, Header], bytes]
    about_of: Callable[[bytes, Header], RowAbout]

    def reader(self, _: SourceHistory | None) -> RowReader:
        return self.rows


def of_stream(reader: WindowReader) -> RowCapture:
    return OneReader(rows=reader, scan=raw_event.scan, update_of=raw_event.update_of, about_of=raw_event.about_of)


def of_oplog(reader: OplogReader) -> RowCapture:
    return OneReader(rows=reader, scan=row_entry.scan, update_of=row_entry.update_of, about_of=row_entry.about_of)
