"""A cluster of real owners and scripted processors over real etcd, a source and a target."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from changefeed.configuration import Configuration
from changefeed.position import Position
from changefeed.records import (
    Barrier,
    ChangefeedId,
    ChangefeedInfo,
    ChangefeedStatus,
    DdlRecord,
    DesiredState,
)
from changefeed.table import TableId
from coordination.decoded import Decoded
from coordination.election import owner_in
from coordination.etcd import Put
from coordination.etcd_client import EtcdClient
from coordination.etcd_connection import EtcdConfig
from coordination.layout import Layout, encode
from coordination.mirror import Mirror
from devstack.mongodb import Client
from tests.component.owner.scripted_processor import ScriptedProcessor

_PROCESS = Path(__file__).with_name("owner_process.py")
_DEADLINE_SECONDS = 40.0


class Cluster:
    def __init__(self, endpoint: str, source_uri: str, target_uri: str, source: Client, target: Client) -> None:
        self.endpoint = endpoint
        self.layout = Layout(f"test-{uuid.uuid4().hex[:12]}")
        self.etcd = EtcdClient(EtcdConfig(endpoints=(endpoint,)))
        self.source, self.target = source, target
        self.owners: dict[str, subprocess.Popen[bytes]] = {}
        self._uris = (source_uri, target_uri)
        self._reader = Decoded(self.layout)
        self._mirror = Mirror(self.etcd, self.layout.root)
        self._mirror.start()

    def close(self) -> None:
        for process in self.owners.values():
            process.kill()
            process.wait()
        self._mirror.stop()
        self.etcd.close()

    def start_owner(self, name: str, *, ttl: float = 3.0, environment: Mapping[str, str] | None = None) -> None:
        command = [sys.executable, str(_PROCESS), name, self.endpoint, self.layout.cluster, str(ttl)]
        self.owners[name] = subprocess.Popen(command, env=dict(environment) if environment else None)

    def processor(self, name: str = "p1") -> ScriptedProcessor:
        return ScriptedProcessor(self.etcd, self.layout, name, timedelta(seconds=3))

    def create(self, id: str, database: str, **configuration: Any) -> ChangefeedId:
        source, target = self._uris
        fields = {
            "id": id,
            "source": source,
            "sink": target,
            "start": "now",
            "filter": {"tables": [f"{database}.*"]},
            "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"}],
        }
        info = ChangefeedInfo(configuration=Configuration.parse(fields | configuration), created_at=datetime.now(UTC))
        feed = ChangefeedId(id)
        self.etcd.txn((), (Put(self.layout.info(feed), encode(info)),))
        return feed

    def change(self, id: ChangefeedId, desired: DesiredState, resume_from: Position | None = None) -> None:
        stored = self._reader_of(ChangefeedInfo, self.layout.info(id))
        assert stored is not None
        info = ChangefeedInfo(
            configuration=stored.configuration,
            desired=desired,
            version=stored.version + 1,
            created_at=stored.created_at,
            resume_from=resume_from,
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
        return barrier

    def ddls(self, id: ChangefeedId) -> list[DdlRecord]:
        group = Decoded(self.layout).group(DdlRecord, self._mirror.view(), self.layout.ddls(id))
        return [stored.record for stored in group.values()]

    def assigned(self, id: ChangefeedId) -> dict[TableId, str]:
        assignments = Decoded(self.layout).assignments(self._mirror.view(), id)
        return {table: node for node, stored in assignments.items() for table in stored.record.tables}

    def owner(self) -> str | None:
        owner = owner_in(self._mirror.view(), self.layout)
        return owner.node.rpartition("-")[0] if owner else None

    def exists(self, id: ChangefeedId) -> bool:
        return bool(self.etcd.range(self.layout.changefeed(id)).items)

    def began(self, id: ChangefeedId) -> bool:
        status = self.status(id)
        return status is not None and status.checkpoint is not None

    def settled(self, id: ChangefeedId, count: int) -> bool:
        """That many DDLs are known, and none is open."""
        records = self.ddls(id)
        return len(records) >= count and not any(record.open for record in records)

    @staticmethod
    def until(condition: Callable[[], object], what: str = "the condition") -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come true within {_DEADLINE_SECONDS:g} s"
            time.sleep(0.02)


@pytest.fixture
def cluster(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Cluster]:
    made = Cluster(etcd_endpoint, source_uri, target_uri, source_client, target_client)
    yield made
    made.close()
