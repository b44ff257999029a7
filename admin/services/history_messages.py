"""`entries`: what users did to a changefeed and what became of it, in the order of time, as messages of the admin API.

Its DDLs stand in their own records, so they are here as long as the changefeed is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC

from admin.services.changefeed_messages import alike
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from changefeed.records.ddl import DdlRecord
from changefeed.records.history import HistoryEntry
from owner.etcd_view import OwnerView


def entries(found: Iterable[HistoryEntry], known: OwnerView | None) -> Iterator[pb.HistoryEntry]:
    ddls = [message for record in known.records.values() for message in _of_ddl(record)] if known is not None else []
    yield from sorted([*map(_of_entry, found), *ddls], key=lambda entry: entry.at.ToDatetime(UTC))


def _of_entry(entry: HistoryEntry) -> pb.HistoryEntry:
    told = alike(entry, "at", "kind", "action", "by", "role", "address", "subject", "before", "after", "note")
    return pb.HistoryEntry(**told)


def _of_ddl(record: DdlRecord) -> Iterator[pb.HistoryEntry]:
    """Refused, and in its present state."""
    kind, action, subject = "ddl", str(record.event.type), str(record.event)
    if record.refused is not None:
        at, why = record.refused.at, record.refused.message
        yield pb.HistoryEntry(at=at, kind=kind, action=action, subject=subject, after="refused", note=why)
    if done := record.done_at:
        yield pb.HistoryEntry(at=done, kind=kind, action=action, subject=subject, after=record.state, note=record.note)
