"""`SinkAbilities`: what a kind of sink can do, as data. Pure.

mongodb     keeps documents: they can be read, compared, cleared, repaired; rows are seen when they are written
blackhole   keeps nothing
file        keeps messages, each change and each DDL: nothing is folded, nothing can be cleared, and a commit makes rows seen
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkAbilities:
    keeps_documents: bool = False
    """It is a MongoDB: it has tables, users, indexes and dead letters."""
    keeps_messages: bool = False
    """It is an event sink: it wants every change, its rows need a commit, and a table is never cleared."""


_OF: Mapping[str, SinkAbilities] = {
    "mongodb": SinkAbilities(keeps_documents=True),
    "mongodb+srv": SinkAbilities(keeps_documents=True),
    "blackhole": SinkAbilities(),
    "file": SinkAbilities(keeps_messages=True),
}


def abilities_of(scheme: str) -> SinkAbilities:
    return _OF[scheme]
