"""Bugs of copies, also of those beside a table."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import processor.copy.plan
from changefeed.table import TableId
from processor.copy.table_copy import TableCopy
from processor.task.copied_ranges import CopiedFilter
from processor.task.rows.mounter import Mounter
from tests.simulation.planted.bug import Bug


def _copies_are_followed_past_chunks_that_are_being_read() -> AbstractContextManager[Any]:
    follows_to = processor.copy.plan.follows_to
    return patch(
        "processor.copy.table_copies.follows_to", lambda copy, inputs: follows_to(copy, replace(inputs, running={}))
    )


def _deletes_are_held_for_chunks_that_nobody_clears() -> AbstractContextManager[Any]:
    return patch.object(CopiedFilter, "of", lambda self, change: self.overlap(change.key, change.time))


def _chunks_that_nobody_clears_are_read_once() -> AbstractContextManager[Any]:
    across = TableCopy.read_across
    return patch.object(
        TableCopy, "read_across", lambda self, position, *, others: across(self, position, others=False)
    )


def _the_rest_of_a_divided_chunk_counts_as_read() -> AbstractContextManager[Any]:
    with_chunk = TableCopy.with_chunk
    return patch.object(
        TableCopy,
        "with_chunk",
        lambda self, read, chunk: with_chunk(self, self.chunks[self.number_from(read.lower)], chunk),
    )


def _a_copy_takes_its_tables_place_before_it_has_caught_up() -> AbstractContextManager[Any]:
    return patch("owner.etcd_view._copied", lambda table, stored: (TableId(table), stored.record.stage))


def _rows_of_a_copy_go_to_the_table_that_stands_still() -> AbstractContextManager[Any]:
    mount = Mounter._mount_table
    return patch.object(Mounter, "_mount_table", lambda self, schema: mount(self, replace(schema, beside=None)))


COPY_BUGS: Mapping[str, Bug] = {
    "copies are followed past chunks that are being read": Bug(
        _copies_are_followed_past_chunks_that_are_being_read, 500
    ),
    "deletes are held for chunks that nobody clears": Bug(
        _deletes_are_held_for_chunks_that_nobody_clears, 40, kept=True
    ),
    "chunks that nobody clears are read once": Bug(_chunks_that_nobody_clears_are_read_once, 100, kept=True),
    "the rest of a divided chunk counts as read": Bug(_the_rest_of_a_divided_chunk_counts_as_read, 30),
    "a copy takes its table's place before it has caught up": Bug(
        _a_copy_takes_its_tables_place_before_it_has_caught_up, 70
    ),
    "rows of a copy go to the table that stands still": Bug(_rows_of_a_copy_go_to_the_table_that_stands_still, 60),
}
