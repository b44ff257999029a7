from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from bench.baselines.baseline import copy_naively, read_at_the_floor, replicate_naively, send_at_the_floor
from bench.baselines.recorder import Recorder
from bench.usage import Usage
from bench.workload import Workload, newest
from changefeed.position import Window
from devstack.mongodb.server import Client
from devstack.stack import DevStack
from tests.independent_compare import documents


@pytest.fixture
def stack(servers: DevStack, source_uri: str, target_uri: str) -> DevStack:
    return servers


def test_the_naive_replicator_replicates_inserts_updates_replaces_and_deletes(
    stack: DevStack, source_client: Client, target_client: Client, database: str
) -> None:
    rows = source_client[database]["rows"]
    start = newest(source_client)
    rows.insert_many([{"_id": number, "a": 1, "b": 1} for number in range(50)])
    rows.update_many({"_id": {"$lt": 10}}, {"$set": {"a": 2}, "$unset": {"b": ""}})
    rows.replace_one({"_id": 10}, {"c": 3})
    rows.delete_many({"_id": {"$gte": 40}})
    usage = replicate_naively(stack, start_ts=start.ts, events=71, database=database)
    assert usage.cpu_seconds > 0
    assert usage.peak["itself"] > 10_000_000
    assert documents(target_client, database, "rows") == documents(source_client, database, "rows")


def test_the_naive_copy_leaves_every_document(
    stack: DevStack, source_client: Client, target_client: Client, database: str
) -> None:
    workload = Workload(events=10_000, tables=2, database=database)
    workload.prepare(source_client)
    workload.insert(source_client)
    copy_naively(stack, database=database, tables=workload.names())
    for name in workload.names():
        assert documents(target_client, database, name) == documents(source_client, database, name)


def test_the_floor_sends_again_what_the_recorder_kept(
    stack: DevStack, source_client: Client, target_client: Client, database: str, tmp_path: Path
) -> None:
    start = newest(source_client)
    source_client[database]["rows"].insert_one({})
    host, port = target_client.primary or ("", 0)
    with Recorder((host, port), tmp_path / "commands") as recorder, MongoClient[dict[str, Any]](recorder.uri) as client:
        rows = client[database]["rows"]
        rows.insert_many([{"_id": number} for number in range(50)])
        rows.update_one({"_id": 1}, {"$set": {"a": 2}})
        rows.delete_one({"_id": 2})
    written = documents(target_client, database, "rows")
    assert len(written) == 49
    target_client[database]["rows"].delete_many({})
    send_at_the_floor(stack, Window(start, newest(source_client)), tmp_path / "commands")
    assert len(documents(target_client, database, "rows")) == 49
    target_client[database]["rows"].delete_many({})


def test_what_only_reads_at_the_floor_writes_nothing(
    stack: DevStack, source_client: Client, target_client: Client, database: str
) -> None:
    start = newest(source_client)
    source_client[database]["rows"].insert_one({})
    assert read_at_the_floor(stack, Window(start, newest(source_client))).seconds > 0
    assert target_client[database].list_collection_names() == []


def test_a_mixture_is_of_as_many_events_as_it_says(source_client: Client, database: str) -> None:
    workload = Workload(events=1_000, database=database)
    workload.prepare(source_client)
    workload.insert(source_client)
    start = workload.mix(source_client).start.ts.to_bson()
    entries = source_client["local"]["oplog.rs"].find({"ns": f"{database}.table00", "ts": {"$gte": start}})
    assert len(list(entries)) == 1_000


def test_usage_counts_processor_time_and_memory_of_children() -> None:
    with Usage() as usage:
        code = "x = bytearray(100_000_000); import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert usage.cpu_seconds >= 0.3
    assert usage.seconds >= 0.3
    assert usage.peak_bytes > 100_000_000
