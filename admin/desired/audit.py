"""`AuditLine`: who changed what, in the log and in the changefeed's history. The only place that says it, for every door to the services."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import structlog

from admin.access import Caller
from admin.preflight.update_effect import changed_options
from changefeed.records.history import HistoryEntry, HistoryKind
from changefeed.records.requests import ChangefeedId, ChangefeedInfo
from coordination.etcd.protocol import Etcd, Op
from coordination.history import entry_ops
from coordination.layout import Layout
from credentials.redaction import redacted

_MOST_CHARACTERS = 500

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    by: Caller
    action: str
    subject: str = ""
    """A table, a DDL or a node, if it is not the whole changefeed."""
    before: str = ""
    after: str = ""

    def ops(self, etcd: Etcd, layout: Layout, id: ChangefeedId) -> list[Op]:
        """What the transaction of the change writes besides."""
        entry = HistoryEntry(
            at=datetime.now(UTC),
            kind=HistoryKind.CHANGE,
            action=self.action,
            by=self.by.name,
            role=self.by.access,
            address=self.by.address,
            subject=_cut(self.subject),
            before=_cut(self.before),
            after=_cut(self.after),
        )
        return entry_ops(etcd, layout, id, entry, secrets.token_hex(2))

    def log(self, id: ChangefeedId | None = None) -> None:
        """Once the change is durable."""
        facts = asdict(self) | {"by": self.by.name, "role": str(self.by.access), "address": self.by.address}
        shown = {name: _cut(value) for name, value in facts.items() if value and name != "action"}
        _log.info("audit", action=self.action, **({"changefeed": id} if id is not None else {}), **shown)


def differing_parts(before: ChangefeedInfo, after: ChangefeedInfo) -> tuple[str, str]:
    """What of a changefeed's `info` a change replaces, and by what; without credentials."""
    parts = list(_parts(before, after))
    return "; ".join(old for old, _ in parts), "; ".join(new for _, new in parts)


def _parts(before: ChangefeedInfo, after: ChangefeedInfo) -> Iterator[tuple[str, str]]:
    if before.desired is not after.desired:
        yield before.desired, after.desired
    if after.resume_from is not None and after.resume_from != before.resume_from:
        yield "at its checkpoint", f"at {after.resume_from}"
    if before.way_back != after.way_back:
        yield ("no way back", "a way back") if before.way_back is None else ("a way back", "no way back")
    if before.capture is not after.capture:
        yield f"capture {before.capture}", f"capture {after.capture}"
    old, new = before.configuration, after.configuration
    for option in changed_options(old, new):
        yield f"{option.path}: {option.before}", f"{option.path}: {option.now}"
    for name, was, now in (("source", old.source, new.source), ("sink", old.sink, new.sink)):
        if was != now and str(was) == str(now):
            yield f"{name}: other credentials or options", f"{name}: {now}"
    if before.version != after.version:
        yield f"version {before.version}", f"version {after.version}"


def _cut(text: str) -> str:
    shown = redacted(text)
    return shown if len(shown) <= _MOST_CHARACTERS else f"{shown[:_MOST_CHARACTERS]}..."
