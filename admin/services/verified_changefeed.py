"""`EtcdCheckpoints`, `RepairRequests`, `at_point`: what a verification of a changefeed asks of it through etcd."""

from __future__ import annotations

import threading
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from admin.cluster_reader import ClusterReader, follows, tables_of
from admin.desired.desired_store import DesiredStore
from changefeed.cluster_time import ClusterTime
from changefeed.errors import WrongState
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId, RepairRequest
from changefeed.records.sync_point import SyncPoint
from changefeed.table import TableId, TableSchema
from owner.ddl.stragglers import wait
from owner.decision.state import published
from owner.decision.sync_hold import place_of
from owner.etcd_view import OwnerView
from schema_store.store import SchemaStore
from verify.at_point import AtPoint
from verify.comparison import Passed

_LOOK_EVERY = 0.1


class EtcdCheckpoints:
    def __init__(self, reader: ClusterReader, id: ChangefeedId, stop: threading.Event) -> None:
        self._reader = reader
        self._id = id
        self._stop = stop

    def wait_past(self, passed_ts: ClusterTime, tables: Collection[TableId], patience: timedelta) -> Passed:
        deadline = time.monotonic() + patience.total_seconds()
        while True:
            known = self._reader.changefeed(self._id)
            places = _places(known, tables)
            if not follows(known) or not places:
                return Passed.STANDING
            if all(place is not None and place.ts > passed_ts for place in places):
                return Passed.PASSED
            if time.monotonic() >= deadline or self._stop.wait(_LOOK_EVERY):
                return Passed.OVERDUE


def _places(known: OwnerView, tables: Collection[TableId]) -> list[Position | None]:
    """Where the tables are that move, or the changefeed. A table stands while it waits for a user. None: not all of it is at one place yet."""
    if known.status is None or known.status.checkpoint is None:
        return [None]
    if not tables:
        return [known.status.checkpoint]
    found, floor = tables_of(known), known.floor(known.status.checkpoint)
    resolved = published(known.status, known.barrier)
    standing = wait(known.stragglers, lambda *_: False, known.records.values(), resolved, found.of).standing
    copying = {each.id for each in found.living if each.own_target or (each.copied and each.id not in known.copied)}
    moving = [table for table in tables if table not in standing]
    return [None if table in copying else found.of(table) or floor.of(table) for table in moving]


_MOST_BYTES = 64 << 10
_LARGEST_KEY = 512 << 10
_PATIENCE = 60.0


class RepairRequests:
    """For one verification. Its threads take turns, so it adds at most one small value to etcd."""

    def __init__(self, reader: ClusterReader, store: DesiredStore, id: ChangefeedId, stop: threading.Event) -> None:
        self._reader = reader
        self._store = store
        self._id = id
        self._stop = stop
        self._turn = threading.Lock()

    def repair(self, tables: Collection[TableId], keys: Sequence[bytes], go_on: Callable[[], object]) -> str:
        small = [key for key in keys if len(key) <= _LARGEST_KEY]
        with self._turn:
            for part in parts(small):
                for table in tables:
                    if why := self._repaired(table, part, go_on):
                        return why
        return "" if len(small) == len(keys) else f"the _id of {len(keys) - len(small)} rows is too large for a request"

    def _repaired(self, table: TableId, keys: Sequence[bytes], go_on: Callable[[], object]) -> str:
        encoded = tuple(b64encode(key).decode() for key in keys)
        request = RepairRequest(id=uuid4().hex, keys=encoded, asked_at=datetime.now(UTC))
        deadline = time.monotonic() + _PATIENCE
        asked_rev: int | None = None
        while not self._stop.is_set():
            if why := self._why_not(table):
                break
            if asked_rev is None:
                asked_rev = self._store.repair(self._id, table, request)
            elif not self._open(table, request, asked_rev):
                return ""
            if time.monotonic() >= deadline:
                why = f"the table's node did not do it within {_PATIENCE:g} s: a DDL may hold the table, or it may be far behind"
                break
            go_on()
            self._stop.wait(_LOOK_EVERY)
        self._store.withdraw(self._id, table, request)
        return why or "the verification was ended"

    def _why_not(self, table: TableId) -> str:
        known = self._reader.changefeed(self._id)
        if not follows(known):
            return f"the changefeed does not run; resume it (`sluice changefeed resume {self._id}`)"
        if table in known.stragglers and known.stragglers[table].record.stopped:
            return f"the table is stopped; resume it (`sluice table resume {self._id} {table}`)"
        schema = next((schema for schema in tables_of(known).living if schema.id == table), None)
        if schema is None:
            return "the changefeed does not replicate the table"
        if schema.own_target:
            return "the table is being copied anew, and the copy takes its place"
        return ""

    def _open(self, table: TableId, request: RepairRequest, asked_rev: int) -> bool:
        found = self._reader.changefeed(self._id, asked_rev).repairs.get(table)
        return found is not None and found.id == request.id


def parts(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Requests of a bounded size."""
    part: list[bytes] = []
    size = 0
    for key in keys:
        if part and size + len(key) > _MOST_BYTES:
            yield part
            part, size = [], 0
        part.append(key)
        size += len(key)
    if part:
        yield part


def known_tables(reader: ClusterReader, id: ChangefeedId) -> tuple[TableSchema, ...]:
    return tables_of(reader.changefeed(id)).living


def at_point(reader: ClusterReader, id: ChangefeedId, point: SyncPoint) -> AtPoint:
    known = reader.changefeed(id)
    configuration = known.info.configuration
    place = place_of(point.source)
    versions = SchemaStore.from_records(known.bases.values(), known.records.values()).versions
    if versions.floor is not None and versions.floor > place:
        raise WrongState(
            f"changefeed {id!r}: which tables there were at {point.source} is not known any more; name a later point"
        )

    def changed() -> Mapping[TableId, str]:
        records = reader.changefeed(id).records.values()
        later = sorted((each for each in records if each.position >= place), key=lambda each: each.position.order)
        return {
            table: f"a {record.event.type} came at {record.position.ts}, later than the point"
            for record in reversed(later)
            for table in {*record.scope.tables, *record.scope.apart, record.event.id, record.event.drop_target}
            if table is not None
        }

    def building() -> set[TableId]:
        records = reader.changefeed(id).records.values()
        return {table for record in records if record.open and record.background for table in record.scope.tables}

    tables = [schema for schema in versions.tables_at(place) if configuration.filter.wants_table(schema.name)]
    return AtPoint(point, tables, changed, configuration.routes.target, building)
