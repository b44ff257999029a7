"""`read_stable_catalog`: reads the catalog until no DDL disturbs the reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from changefeed.errors import SourceUnavailable, SourceUnsupported
from changefeed.event import DdlEvent
from changefeed.position import Position
from changefeed.table import TableName
from source.connection import HELLO, Client, read_command
from source.ddl.ddl_watch import DdlWatch
from source.errors import translated
from source.tables.catalog import CatalogReading, Stability, read_catalog, stability_of

_ATTEMPTS = 20

Wanted = Callable[[TableName], bool]


def read_stable_catalog(
    client: Client,
    wanted: Wanted,
    open_watch: Callable[[Position], DdlWatch],
    *,
    valid_from: Position | None = None,
    buckets: bool = False,
) -> CatalogReading:
    """Blocks for the reading and some hundred milliseconds more. `open_watch` opens a separate watch for it.

    With `valid_from` (a start in the past) there is one attempt: a DDL since then makes the present catalog useless.
    `buckets`: as for `read_catalog`; the watch must tell of time series in the same way.
    """
    for _ in range(1 if valid_from is not None else _ATTEMPTS):
        primary = _primary(client)
        reading = read_catalog(client, wanted, valid_from=valid_from, buckets=buckets)
        disturbing = disturbing_ddl(reading, wanted, open_watch)
        if disturbing is None and _primary(client) == primary:
            return reading
        if disturbing is not None and valid_from is not None:
            raise SourceUnsupported(
                f"the source's tables at {valid_from} are unknown, since they changed later: {disturbing}; "
                "start after it, or with an initial copy"
            )
    raise changed_each_time()


def changed_each_time() -> SourceUnavailable:
    return SourceUnavailable("the catalog of the source changed during each attempt to read it")


def concerns(ddl: DdlEvent, wanted: Wanted) -> bool:
    """A dropDatabase is taken to concern every changefeed, since any may have tables in the database."""
    return ddl.table is None or wanted(ddl.table) or (ddl.renamed_to is not None and wanted(ddl.renamed_to))


def disturbing_ddl(
    reading: CatalogReading, wanted: Wanted, open_watch: Callable[[Position], DdlWatch]
) -> DdlEvent | None:
    watch = open_watch(reading.position)
    try:
        while True:
            batch = watch.poll()
            if batch.trouble is not None:
                raise batch.trouble
            for ddl in batch.events:
                if concerns(ddl, wanted) and stability_of(reading, [ddl], batch.resolved) is Stability.DISTURBED:
                    return ddl
            if stability_of(reading, [], batch.resolved) is Stability.STABLE:
                return None
    finally:
        watch.close()


def _primary(client: Client) -> Any:
    """It changes with each election, which may roll back what was read, and with the member that is read. None through mongos."""
    with translated("reading which member is the source's primary"):
        elected = client.admin.command(HELLO).get("electionId")
        return elected and (elected, read_command(client, "admin", {HELLO: 1}).get("me"))
