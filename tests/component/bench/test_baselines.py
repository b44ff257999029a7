from __future__ import annotations

import subprocess
import sys
from typing import Any

from pymongo import MongoClient

from bench.baseline import replicate_naively
from bench.usage import Usage
from bench.workload import newest


def test_the_baseline_replicates_inserts_updates_replaces_and_deletes(
    source_client: MongoClient[dict[str, Any]],
    target_client: MongoClient[dict[str, Any]],
    source_uri: str,
    target_uri: str,
    database: str,
) -> None:
    rows = source_client[database]["rows"]
    start = newest(source_client)
    rows.insert_many([{"_id": number, "a": 1, "b": 1} for number in range(50)])
    rows.update_many({"_id": {"$lt": 10}}, {"$set": {"a": 2}, "$unset": {"b": ""}})
    rows.replace_one({"_id": 10}, {"c": 3})
    rows.delete_many({"_id": {"$gte": 40}})
    usage = replicate_naively(source_uri, target_uri, start_ts=start.ts, events=71, database=database)
    assert usage.cpu_seconds > 0
    assert usage.peak_bytes > 10_000_000
    assert list(target_client[database]["rows"].find(sort=[("_id", 1)])) == list(rows.find(sort=[("_id", 1)]))


def test_usage_counts_processor_time_and_memory_of_children() -> None:
    with Usage() as usage:
        code = "x = bytearray(100_000_000); import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert usage.cpu_seconds >= 0.3
    assert usage.seconds >= 0.3
    assert usage.peak_bytes > 100_000_000
