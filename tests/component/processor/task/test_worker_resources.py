"""What a worker keeps of contexts that no task will ask for again."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import replace
from pathlib import Path

from changefeed.config.written_values import RateLimit
from changefeed.position import Window
from devstack.mongodb.server import Client
from processor.task.changefeed_resources import ChangefeedResources
from processor.task.worker_resources import WorkerResources, worker_resources
from tests.component.processor.windowing import Handed, Windowing


def _threads() -> int:
    return sum(thread.name.startswith("side-by-side") for thread in threading.enumerate())


def _files() -> int:
    return sum("sluice-limits" in os.path.realpath(each) for each in Path("/proc/self/fd").iterdir())


def test_of_an_older_context_nothing_is_left(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> None:
    """No garbage is collected for it: the worker has excluded from that what it keeps."""
    shop = source_client[database]
    for name in "ab":
        shop.create_collection(name)
    windowing = Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    context, start = windowing.shared.context, windowing.start
    limited = context.configuration.model_copy(update={"apply_limit": RateLimit(documents=100_000)})
    alive: list[weakref.ref[ChangefeedResources]] = []
    opened: set[tuple[int, int]] = set()
    for number in range(4):
        for name in "ab":
            shop[name].insert_many([{"_id": number * 1_000 + key} for key in range(700)])
        end = windowing.now()
        windowing.shared = Handed(replace(context, key=f"{context.key}/{number}", configuration=limited))
        windowing.run(Window(start, end), replay_until=start)
        start = end
        with worker_resources.task(windowing.shared, windowing.attempt) as resources:
            alive.append(weakref.ref(resources))
        del resources
        opened.add((_threads(), _files()))
    assert not windowing.differences()
    assert [each() is not None for each in alive] == [False, False, False, True]
    assert len(opened) == 1, "threads and files"


def test_resources_of_former_credentials_are_closed(
    etcd_endpoint: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client, database: str
) -> None:
    source_client[database].create_collection("a")
    windowing = Windowing(etcd_endpoint, source_uri, target_uri, source_client, target_client, database)
    limited = windowing.shared.context.configuration.model_copy(update={"apply_limit": RateLimit(documents=1)})
    windowing.shared = Handed(replace(windowing.shared.context, configuration=limited))
    files, worker = _files(), WorkerResources()
    with worker.task(windowing.shared, windowing.attempt) as former:
        former.apply_limiter(1.0)
    former.ends = replace(former.ends, source=object())  # type: ignore[arg-type]  # what was open before
    with worker.task(windowing.shared, windowing.attempt) as renewed:
        renewed.apply_limiter(1.0)
    assert former is not renewed
    assert _files() - files == 1
