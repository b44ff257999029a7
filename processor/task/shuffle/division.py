"""`divide`: divides a divisible table's changes in a wide window among the buckets. Pure.

    slices, in parallel     read with images; each change of a divided table carries its `UniqueValues`, no image
    ──shuffle──▶ one task for each divided table: forms components, gives each a bucket
    ──shuffle──▶ buckets, in parallel

Changes that share a value, directly or through other changes, form one component. One bucket applies a component in order. Other
components share no value with it, so they may be ahead or behind: none of their rows can conflict with its rows. A worked example:

    1: u one -> aside      {id 1, one, aside}      component 0
    2: u two -> one        {id 2, two, one}        component 0
    3: u six -> seven      {id 3, six, seven}      component 2

A table with a change of unknown values is one component. A table is not divided where events are replayed, nor while its initial copy
lacks changes: the target is then ahead, its rows have values of later windows, and waiting for these needs one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from zlib import crc32

from changefeed.config.configuration import OrderBy
from changefeed.table import TableId
from processor.task.job import JobSpec
from processor.task.job_context import JobContext
from processor.task.shuffle.routing import divisible
from processor.task.shuffle.unique_values import DIGEST_BYTES, UNKNOWN

_SIZE_BYTES = 4


def divided_tables(spec: JobSpec, context: JobContext) -> tuple[TableId, ...]:
    """The tables to divide. Creating or dropping an index ends a table's window, so one schema is valid in the whole window."""
    pipeline, job = context.configuration.pipeline, spec.whole(context.tables)
    if not pipeline.pre_images or pipeline.order_by is not OrderBy.AUTO:
        return ()
    found = []
    for table in context.schemas.perhaps(divisible) - spec.copied.keys():
        window = job.of(table)
        if window is None or window.start < job.replay_of(table):
            continue
        schema = context.schemas.at(table, window.start)
        if schema is not None and pipeline.wants_pre_images(schema.name) and divisible(schema):
            found.append(table)
    return tuple(sorted(found))


def linked(values: bytes, event: bytes) -> bytes:
    return b"".join((len(values).to_bytes(_SIZE_BYTES, "little"), values, event))


def _unlinked(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at < len(blob):
        values_at = at + _SIZE_BYTES
        event_at = values_at + int.from_bytes(blob[at:values_at], "little")
        at = event_at + int.from_bytes(blob[event_at : event_at + _SIZE_BYTES], "little")
        yield blob[values_at:event_at], blob[event_at:at]


def divide(chunks: Iterable[tuple[int, bytes]], seed: int, buckets: int) -> Iterator[tuple[int, int, bytes]]:
    """Takes one table's linked events in order, each chunk with its slice. Yields packed events by bucket and slice."""
    held = list(chunks)
    components = Components(values for _, blob in held for values, _ in _unlinked(blob))
    numbers = count()
    for slice_, blob in held:
        spread: dict[int, list[bytes]] = {}
        for _, event in _unlinked(blob):
            component = components.of(next(numbers))
            spread.setdefault(crc32(component.to_bytes(8, "little"), seed) % buckets, []).append(event)
        for bucket, events in spread.items():
            yield bucket, slice_, b"".join(events)


class Components:
    """Which of a window's changes belong together. `changes`: the digests of each change's values."""

    def __init__(self, changes: Iterable[bytes]) -> None:
        self._parents: list[int] = []
        self._one = False
        owners: dict[bytes, int] = {}
        for number, values in enumerate(changes):
            self._parents.append(number)
            self._one = self._one or values == UNKNOWN
            for at in range(0, len(values), DIGEST_BYTES):
                self._join(number, owners.setdefault(values[at : at + DIGEST_BYTES], number))

    def of(self, number: int) -> int:
        """The first change of the component that a change belongs to."""
        return 0 if self._one else self._first(number)

    def _first(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self._first(one), self._first(other)))
        self._parents[second] = first
