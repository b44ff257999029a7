"""`HistoryEntry`: one thing that was done to a changefeed, or that became of it, for users who ask later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class HistoryKind(StrEnum):
    CHANGE = "change"
    """By a user."""
    STATE = "state"
    """By the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    at: datetime
    kind: HistoryKind
    action: str
    by: str
    role: str = ""
    address: str = ""
    """From which a user called."""
    subject: str = ""
    """A table or a DDL, if it is not the whole changefeed."""
    before: str = ""
    after: str = ""
    note: str = ""
