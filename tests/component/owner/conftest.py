"""A cluster of real owners and scripted processors over real etcd, a source and a target."""

from __future__ import annotations

import os
import threading
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database as _Database

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.errors import CoordinationUnavailable
from changefeed.lifecycle import State
from changefeed.position import Position
from changefeed.records.ddl import Barrier, DdlRecord
from changefeed.records.node import NodeId, NodeRecord
from changefeed.records.requests import (
    ChangefeedId,
    ChangefeedInfo,
    DesiredState,
    MoveRequest,
    Reroute,
    TableRequest,
    TableVerb,
)
from changefeed.records.status import ChangefeedStatus, Straggler
from changefeed.table import TableId
from coordination import failpoint
from coordination.decoded import Decoded
from coordination.election import owner_in
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.layout import Layout, OwnerRecord, ResignRequest, child, decode, encode
from coordination.mirror import Mirror
from devstack.mongodb.server import Client
from devstack.scripted_processor import ScriptedProcessor
from owner.ddl.stragglers import known_tables
from tests import zygote
from tests.until import PATIENCE_SECONDS, until

Database = _Database[dict[str, Any]]

_PROCESS = Path(__file__).with_name("owner_process.py")
_ROOT = str(Path(__file__).parents[3])


class Cluster:
    def __init__(self, endpoint: str, source_uri: str, target_uri: str, source: Client, target: Client) -> None:
        self.endpoint = endpoint
        self.layout = Layout(f"test-{uuid.uuid4().hex[:12]}")
        self.etcd = EtcdClient(EtcdConfig(endpoints=(endpoint,)))
        self.source, self.target = source, target
        self.owners: dict[str, zygote.Process] = {}
        self._uris = (source_uri, target_uri)
        self.target_uri = target_uri
        self._reader = Decoded(self.layout)
        self._mirror = Mirror(self.etcd, self.layout.root)
        self._mirror.start()
        self._history: dict[ChangefeedId, list[Barrier]] = defaultdict(list)
        self._watch = self.etcd.watch(self.layout.changefeeds, self.etcd.range(self.layout.root).revision + 1)
        self._historian = threading.Thread(target=self._remember_barriers, daemon=True)
        self._historian.start()

    def _remember_barriers(self) -> None:
        """Records each barrier that is published."""
        while True:
            try:
                update = self._watch.next(timedelta(seconds=1))
            except CoordinationUnavailable:
                return
            for change in update.changes if update else ():
                if change.now is not None and change.key.endswith("/barrier"):
                    id = ChangefeedId(child(change.key, self.layout.changefeeds))
                    self._history[id].append(decode(Barrier, change.now))

    def close(self) -> None:
        self._watch.close()
        self._historian.join()
        for process in self.owners.values():
            process.kill()  # also ends a frozen process
            process.wait()
        self._mirror.stop()
        self.etcd.close()

    def start_owner(self, name: str, *, ttl: float = 10.0, margin: float = 1.0, failpoints: str = "") -> None:
        """The owner becomes a candidate before those started after the next `stand`."""
        command = [str(_PROCESS), name, self.endpoint, self.layout.cluster, str(ttl), str(margin)]
        self.owners[name] = zygote.start(command, {**os.environ, "PYTHONPATH": _ROOT, failpoint.VARIABLE: failpoints})

    def stand(self) -> None:
        """Waits until every started owner leads or is a candidate."""
        self.until(lambda: all(map(self._stands, self.owners)), "the line of owners")

    def _stands(self, name: str) -> bool:
        line = self._mirror.view().group(self.layout.owners).values()
        return any(_name_of(decode(OwnerRecord, kv).node) == name for kv in line)

    def died(self, name: str) -> int:
        """Waits for the end of the process, and returns its exit code."""
        return self.owners[name].wait(PATIENCE_SECONDS)

    def revoke_lease(self, name: str) -> None:
        """Has the effect of the expiry of a dead process's lease, without the wait."""
        for kv in self._mirror.view().group(self.layout.nodes).values():
            if _name_of(decode(NodeRecord, kv).id) == name:
                self.etcd.revoke(kv.lease)

    def processor(self, name: str = "p1", *, ttl: float = 10.0) -> ScriptedProcessor:
        return ScriptedProcessor(self.etcd, self.layout, name, timedelta(seconds=ttl))

    @property
    def source_uri(self) -> str:
        return self._uris[0]

    def create(
        self,
        id: str,
        *databases: str,
        desired: DesiredState = DesiredState.RUNNING,
        capture: Capture = Capture.OPLOG,
        **configuration: Any,
    ) -> ChangefeedId:
        """Replicates each database to a database of the same name with `_to` appended. Skips the checks of the admin API."""
        source, target = self._uris
        fields = {
            "id": id,
            "source": source,
            "sink": target,
            "start": "now",
            "filter": {"tables": [f"{database}.*" for database in databases]},
            "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"} for database in databases],
        }
        parsed = Configuration.model_validate(fields | configuration)
        info = ChangefeedInfo(capture=capture, configuration=parsed, desired=desired, created_at=datetime.now(UTC))
        feed = ChangefeedId(id)
        self.etcd.txn((), (Put(self.layout.info(feed), encode(info)),))
        return feed

    def change(
        self,
        id: ChangefeedId,
        desired: DesiredState = DesiredState.RUNNING,
        resume_from: Position | None = None,
        capture: Capture = Capture.OPLOG,
        reroute: Reroute | None = None,
        **configuration: Any,
    ) -> None:
        """Writes the user's next change."""
        found = self.etcd.get(self.layout.info(id))
        assert found is not None
        stored = decode(ChangefeedInfo, found)
        fields = stored.configuration.model_dump(mode="json", by_alias=True) | configuration
        info = ChangefeedInfo(
            configuration=Configuration.parse(fields),
            desired=desired,
            version=stored.version + 1,
            created_at=stored.created_at,
            resume_from=resume_from,
            capture=capture,
            reroute=reroute,
        )
        self.etcd.txn((), (Put(self.layout.info(id), encode(info)),))

    def _reader_of(self, kind: type[Any], key: str) -> Any:
        stored = Decoded(self.layout).one(kind, self._mirror.view(), key)
        return stored.record if stored else None

    def status(self, id: ChangefeedId) -> ChangefeedStatus | None:
        status: ChangefeedStatus | None = self._reader_of(ChangefeedStatus, self.layout.status(id))
        return status

    def barrier(self, id: ChangefeedId) -> Barrier | None:
        barrier: Barrier | None = self._reader_of(Barrier, self.layout.barrier(id))
        return barrier.holding(self.ddls(id)) if barrier else None

    def ddls(self, id: ChangefeedId) -> list[DdlRecord]:
        group = Decoded(self.layout).group(DdlRecord, self._mirror.view(), self.layout.ddls(id))
        return [stored.record for stored in group.values()]

    def record(self, id: ChangefeedId, record: DdlRecord) -> None:
        """Writes a DDL record, which in the product only the owner does."""
        self.etcd.txn((), (Put(self.layout.ddl(id, record.position), encode(record)),))

    def assigned(self, id: ChangefeedId) -> dict[TableId, str]:
        assignments = Decoded(self.layout).assignments(self._mirror.view(), id)
        return {table: node for node, stored in assignments.items() for table in stored.record.tables}

    def copied(self, id: ChangefeedId, table: TableId) -> bool:
        """Whether the table's node is assigned to copy the table first."""
        assignments = Decoded(self.layout).assignments(self._mirror.view(), id)
        return any(stored.record.tables[table].copy for stored in assignments.values() if table in stored.record.tables)

    def held(self, id: ChangefeedId) -> Mapping[TableId, Position]:
        barrier = self.barrier(id)
        return barrier.held if barrier else {}

    def next_barrier(self, id: ChangefeedId) -> Barrier:
        """Waits for a barrier that is published after the call."""
        seen = len(self._history[id])
        self.until(lambda: len(self._history[id]) > seen, "another barrier")
        return self._history[id][-1]

    def barriers_held(self, id: ChangefeedId) -> int:
        """The number of barriers since the start of the changefeed that held a table."""
        return sum(1 for barrier in self._history.get(id, []) if barrier.held)

    def owner(self) -> str | None:
        owner = owner_in(self._mirror.view(), self.layout)
        return _name_of(owner.node) if owner else None

    def epoch(self) -> int:
        owner = owner_in(self._mirror.view(), self.layout)
        return owner.epoch if owner else 0

    def ask_to_resign(self) -> None:
        line = self._mirror.view().group(self.layout.owners).values()
        [leader] = [kv for kv in line if kv.create_rev == self.epoch()]
        request = encode(ResignRequest(epoch=leader.create_rev))
        self.etcd.txn((), (Put(self.layout.resign, request, leader.lease),))

    def next_owner(self, dead: AbstractSet[str]) -> str:
        """Waits for an owner that is not among the dead ones."""
        self.until(lambda: (self.owner() or "") not in {"", *dead}, "another owner")
        return self.owner() or ""

    def state(self, id: ChangefeedId) -> State | None:
        status = self.status(id)
        return status.lifecycle.state if status else None

    def obeyed(self, id: ChangefeedId) -> bool:
        """Whether the owner has processed the user's last change."""
        found = self.etcd.get(self.layout.info(id))
        status = self.status(id)
        return found is not None and status is not None and status.info_version == decode(ChangefeedInfo, found).version

    def error(self, id: ChangefeedId) -> str:
        status = self.status(id)
        error = status.lifecycle.error if status else None
        return f"{error.code}: {error.message}" if error else ""

    def refusal(self, id: ChangefeedId) -> str:
        """Of the first DDL that waits for a user; empty if there is none."""
        refused = [record.refused for record in self.ddls(id) if record.open and record.refused is not None]
        return f"{refused[0].code}: {refused[0].message}" if refused else ""

    def resume_refused(self, id: ChangefeedId) -> None:
        """Asks to resume the tables of refused DDLs."""
        for record in self.ddls(id):
            if record.open and record.refused is not None:
                for table in known_tables(record):
                    self.ask(id, table, TableVerb.RESUME)

    def ask(self, id: ChangefeedId, table: TableId, verb: TableVerb) -> None:
        self.etcd.txn((), (Put(self.layout.request(id, table), encode(TableRequest(verb=verb))),))

    def stragglers(self, id: ChangefeedId) -> dict[TableId, Straggler]:
        group = self.layout.stragglers(id)
        return {TableId(child(kv.key, group)): decode(Straggler, kv) for kv in self.etcd.range(group).items}

    def passes_now(self, id: ChangefeedId) -> None:
        """Waits until the changefeed's checkpoint has passed what the source has now; at an open DDL it stands at the DDL's own time."""
        hello = self.source.admin.command("hello")
        now = ClusterTime.from_bson(hello["lastWrite"]["majorityOpTime"]["ts"])

        def passed() -> bool:
            status = self.status(id)
            return status is not None and status.checkpoint is not None and status.checkpoint.ts > now

        self.until(passed, f"the checkpoint passes {now}")

    def move(self, id: ChangefeedId, table: TableId, node: NodeId) -> None:
        self.etcd.txn((), (Put(self.layout.move(id, table), encode(MoveRequest(node=node))),))

    def moves(self, id: ChangefeedId) -> bool:
        """Whether a request to move a table exists."""
        return bool(self._mirror.view().group(self.layout.moves(id)))

    def reports_of(self, id: ChangefeedId, node: NodeId) -> bool:
        return self._mirror.view().get(self.layout.position(id, node)) is not None

    def drain(self, node: NodeId) -> None:
        key = self.layout.node(node)
        found = self.etcd.get(key)
        assert found is not None
        self.etcd.txn((), (Put(key, encode(replace(decode(NodeRecord, found), draining=True)), found.lease),))

    def exists(self, id: ChangefeedId) -> bool:
        return bool(self.etcd.range(self.layout.changefeed(id)).items)

    def began(self, id: ChangefeedId) -> bool:
        status = self.status(id)
        return status is not None and status.checkpoint is not None

    def settled(self, id: ChangefeedId, count: int) -> bool:
        """Whether at least `count` DDLs are recorded and none is open."""
        records = self.ddls(id)
        return len(records) >= count and not any(record.open for record in records)

    until = staticmethod(until)


def _name_of(node: NodeId) -> str:
    return node.rpartition("-")[0]


@pytest.fixture
def cluster(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Cluster]:
    """For tests that kill or freeze their owners."""
    made = Cluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    yield made
    made.close()


@pytest.fixture(scope="module")
def led(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Cluster]:
    """One owner and one processor for all tests of a module; each test has changefeeds of its own."""
    made = Cluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    made.start_owner("o1")
    with made.processor():
        yield made
    made.close()
