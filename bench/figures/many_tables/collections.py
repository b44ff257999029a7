"""`collections`: a changefeed of thousands of real collections, from one `mongod` to another: copied, created and dropped by the thousand,
dropped all at once, with the owner killed meanwhile.

Each collection with its index is two files of a server. So both servers are told to close files that are idle, and SLUICE_COLLECTIONS may be
larger than half of the limit of open files. The target is compared with the source after each step.
"""

from __future__ import annotations

import os
import resource
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console

from bench.product import Product, target_of
from bench.result import Figure
from bench.run import OURS
from bench.workload import newest
from changefeed.records.requests import ChangefeedId
from devstack.stack import DevStack
from source.connection import Client, connect

_COLLECTIONS = int(os.environ.get("SLUICE_COLLECTIONS", "1000"))
_STORM = 1_000
_SAMPLED = 200
_THREADS = 4
_DEADLINE_SECONDS = 3_600.0
_LOOK_SECONDS = 1.0
"""Listing thousands of collections is work for a server."""
_IDLE_FILES = "file_manager=(close_idle_time=3,close_scan_interval=1,close_handle_minimum=100)"
_CHECKPOINT_SECONDS = 5.0
"""A file is idle only after a checkpoint, which is every minute by default."""

_console = Console(stderr=True)


@dataclass(slots=True)
class _Steps:
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begun_at = time.monotonic()
        yield
        self.seconds[name] = time.monotonic() - begun_at
        _console.print(f"{name}: {self.seconds[name]:.1f} s")


def collections(stack: DevStack) -> list[Figure]:
    database = f"bench_{uuid.uuid4().hex[:8]}"
    steps = _Steps()
    with connect(stack.source_uri) as source, connect(stack.target_uri) as target, Product(stack) as product:
        for server in (source, target):
            _close_idle_files(server)
        product.warm_up(source)
        with steps.timed("made at the source"):
            _at_once(lambda number: _make(source, database, f"c{number:05}"), _COLLECTIONS)
        id = product.create(database, start="initial")
        with product.usage() as usage, steps.timed("copied"):
            _until(lambda: len(_names(target, target_of(database))) == _COLLECTIONS, "all collections")
            product.until_copied(id, _COLLECTIONS)
        _expect_equal(source, target, database)
        with steps.timed(f"{_STORM} creates and {_STORM} drops, the owner killed between them"):
            _storm(product, id, source, target, database)
        with steps.timed("dropDatabase of all, the owner killed meanwhile"):
            _drop_all(product, id, source, target, database)
        product.remove(id)
    made, copied, storm, dropped = steps.seconds.values()
    memory = {part: usage.peak[part] / 2**20 for part in OURS}
    note = ", ".join(f"{part} {size:.0f}" for part, size in memory.items())
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    of = f"{_COLLECTIONS} collections, {limit} open files; the baseline is making them at the source, with {_THREADS} connections"
    return [
        Figure.less_is_better("collections_copied", copied, "s", baseline=made, note=of),
        Figure.less_is_better(f"collections_storm_of_{2 * _STORM}", storm, "s", baseline=made / _COLLECTIONS * _STORM),
        Figure.less_is_better("collections_dropped", dropped, "s", baseline=made),
        Figure.less_is_better(
            "collections_memory", sum(memory.values()), "MiB", baseline=sum(memory.values()), note=note
        ),
    ]


def _close_idle_files(server: Client) -> None:
    server.admin.command("setParameter", 1, wiredTigerEngineRuntimeConfig=_IDLE_FILES)
    server.admin.command("setParameter", 1, syncdelay=_CHECKPOINT_SECONDS)


def _make(source: Client, database: str, name: str) -> None:
    source[database][name].insert_one({"_id": name})


def _at_once(act: Callable[[int], object], count: int) -> None:
    with ThreadPoolExecutor(_THREADS) as threads:
        for done in [threads.submit(act, number) for number in range(count)]:
            done.result()


def _storm(product: Product, id: ChangefeedId, source: Client, target: Client, database: str) -> None:
    _at_once(lambda number: _make(source, database, f"storm{number:05}"), _STORM)
    product.kill("owner")
    product.start("owner")
    _at_once(lambda number: source[database].drop_collection(f"storm{number:05}"), _STORM)
    product.until_at(id, newest(source))
    _expect_equal(source, target, database)


def _drop_all(product: Product, id: ChangefeedId, source: Client, target: Client, database: str) -> None:
    with ThreadPoolExecutor(1) as beside:
        dropping = beside.submit(source.drop_database, database)
        _until(lambda: len(_names(target, target_of(database))) < _COLLECTIONS, "the first drop at the target")
        product.kill("owner")
        product.start("owner")
        dropping.result()
    product.until_at(id, newest(source))
    _expect_equal(source, target, database)


def _expect_equal(source: Client, target: Client, database: str) -> None:
    """The names of all collections, and the documents of some."""
    _until(lambda: _names(target, target_of(database)) == _names(source, database), "the same names at the target")
    for name in sorted(_names(source, database))[:: max(1, _COLLECTIONS // _SAMPLED)]:
        expected = list(source[database][name].find())
        _until(lambda: list(target[target_of(database)][name].find()) == expected, f"the rows of {name}")  # noqa: B023 - called at once


def _names(server: Client, database: str) -> set[str]:
    return set(server[database].list_collection_names())


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {_DEADLINE_SECONDS:g} s: {what}")
        time.sleep(_LOOK_SECONDS)
