"""`problems`: whether an update still means the source and the sink that its changefeed has read and written. Pure.

A position means something in one deployment's history only, and what was replicated is in one target only. Host names do not say which
deployment they lead to; the id of its replica set or sharded cluster does.

    known and found ids                        decide, whatever the host names are
    one of them is unknown, the same hosts     nothing was changed
    one of them is unknown, the source         the same if its oplog has an entry at a position of the changefeed, and it has one of its tables
    otherwise                                  refused, with the privilege that would prove it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from changefeed.config.sinks.sink_abilities import abilities_of
from changefeed.config.uri import ConnectionUri


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The source or the sink, as it is known, and as the update names it."""

    name: str
    before: ConnectionUri
    now: ConnectionUri
    known_id: str
    found_id: str
    other_known_id: str
    """Of the changefeed's other side: the two may have been exchanged."""
    proven: bool | None = None
    """Whether the changefeed's own history was found there. None: it could not be looked for."""
    grant: str = ""
    """What the user of the new URI would need."""

    @property
    def same_hosts(self) -> bool:
        if not (abilities_of(self.before.scheme).keeps_documents and abilities_of(self.now.scheme).keeps_documents):
            return str(self.before) == str(self.now)
        return self.before.hosts == self.now.hosts


def problems(id: str, *sides: Side) -> Iterator[str]:
    for side in sides:
        why = _another(side)
        if why is not None:
            yield (
                f"{side.name}: {why}; an update keeps the deployments that changefeed {id!r} has replicated between, under whatever names. To "
                "replicate between others, create another changefeed"
            )


def _another(side: Side) -> str | None:
    if not (abilities_of(side.before.scheme).keeps_documents and abilities_of(side.now.scheme).keeps_documents):
        other = f"it is {side.now}, and was {side.before}, which does not have the same rows"
        return None if side.same_hosts else other
    if side.found_id and side.found_id == side.other_known_id:
        return f"it is the changefeed's {'sink' if side.name == 'source' else 'source'}"
    if side.known_id and side.found_id:
        another = f"it is another deployment, {side.found_id}, and was {side.known_id}"
        return another if side.known_id != side.found_id else None
    if side.proven or side.same_hosts:
        return None
    unknown = f"its id is unknown{side.grant and f': {side.grant}'}"
    if side.proven is False:
        return f"its oplog has no entry at a position of the changefeed, or it has none of its tables, and {unknown}"
    return f"nothing proves that it is the deployment that it was: {unknown}"
