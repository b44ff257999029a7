"""`Pair`: a source of one version and a target of another, from the copy to the cut-over, and the differences found then.

    tables of every kind of DDL ──▶ changefeed, copy ──▶ every kind of DDL, random rows, kill -9 of a node ──▶ finalize ──▶ comparison

Each kind has two databases: in `copied_<kind>` its DDL runs before the changefeed begins, in `live_<kind>` while it is replicated.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devstack.etcd.server import EtcdServer
from devstack.mongodb.server import Client, MongoDB
from devstack.node import Node
from devstack.process import side_by_side
from tests.component.node.server_process import run
from tests.component.processor.workload import MixedOperations
from tests.e2e.chaos.workload import Repeated
from tests.independent_compare import differences
from tests.versions.findings import Findings
from tests.versions.kinds import KINDS, Database, Kind, Version

COPY, ROWS, ACCIDENT, VERIFY, REFUSAL = "copy", "rows", "accident", "verify", "refusal"

_FEED = "versions"
_ROWS = "live_rows"
_ROW_TABLES = ("r0", "r1", "r2", "r3")
_BATCH_SECONDS = 0.5
_FEWEST_BATCHES = 3
_DEADLINE_SECONDS = 600.0
_REASON = "older than the source"
_CONFIGURATION = """
id: versions
source: {source}
sink: {target}
start: initial
on_divergence: fail
filter: {{tables: ["copied_*.*", "live_*.*"]}}
"""


@dataclass(frozen=True, kw_only=True)
class Versions:
    source: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Versions:
        source, _, target = text.partition(":")
        return cls(source=source, target=target)

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def numbers(self) -> tuple[Version, Version]:
        return number(self.source), number(self.target)


PAIRS = tuple(
    map(
        Versions.parse,
        ("4.4.2:4.4.2", "4.4.2:6.0.27", "5.0.4:5.0.4", "5.0.4:6.0.5", "6.0.5:6.0.27", "6.0.27:6.0.5"),
    )
)
REFUSED = (Versions(source="6.0.5", target="5.0.4"),)


def number(version: str) -> Version:
    return tuple(map(int, version.split(".")))


class PairFailed(Exception):
    """Replication failed or did not finish, so nothing could be compared."""


class Pair:
    """With `accident` there are two nodes, and the owner is killed in the middle of the DDLs; without it there is one node."""

    def __init__(
        self,
        versions: Versions,
        directory: Path,
        *,
        accident: bool = True,
        kinds: Mapping[str, Kind] = KINDS,
    ) -> None:
        self._versions = versions
        self._accident = accident
        log = directory / "log"
        self._etcd = EtcdServer(directory / "etcd", log / "etcd.log")
        self._source = MongoDB("source", directory / "source", log / "source.log", version=versions.source)
        self._target = MongoDB("target", directory / "target", log / "target.log", version=versions.target)
        flags = ("--session-ttl", "10", "--log-format", "json", "--spark-master", "local[2]")
        self._nodes = [
            Node(name, self._etcd.endpoint, directory / name, log / f"{name}.log", *flags)
            for name in (("n1", "n2") if accident else ("n1",))
        ]
        self._start = ""
        self._kinds = {name: kind for name, kind in kinds.items() if kind.known_to(*versions.numbers)}

    def run(self) -> Findings:
        findings = Findings()
        with self._running() as (source, target):
            self._prepare(source)
            self._create()
            self._until(self._copied, "the copy")
            with Repeated("rows", Rows(source).write, _BATCH_SECONDS) as rows:
                self._change(source, findings)
                self._until(lambda: rows.done["batches"] >= _FEWEST_BATCHES, "the writing of rows")
            self._until(self._finalized, "the cut-over")
            for what, faults in self._compared(source, target):
                findings.looked_at(what, faults)
            verified = self._sluice("verify", _FEED)
            unequal = [line for line in verified.stdout.splitlines() if not line.endswith(" equal")]
            findings.looked_at(VERIFY, [*unequal, verified.stderr] if verified.returncode != 0 else ())
        return findings

    def refused(self) -> Findings:
        """The creation of a changefeed to an older target is refused, with the reason."""
        findings = Findings()
        with self._running():
            done = self._sluice("changefeed", "create", "-", input=self._configuration())
        reasoned = done.returncode != 0 and _REASON in done.stderr
        findings.looked_at(REFUSAL, () if reasoned else [done.stdout + done.stderr])
        return findings

    @contextmanager
    def _running(self) -> Iterator[tuple[Client, Client]]:
        with ExitStack() as running:
            servers = [self._etcd, self._source, self._target]
            running.callback(lambda: side_by_side([server.kill for server in servers]))
            side_by_side([server.start for server in servers])
            running.callback(lambda: side_by_side([node.kill for node in self._nodes]))
            side_by_side([node.start for node in self._nodes])
            source: Client = running.enter_context(Client(self._source.uri))
            target: Client = running.enter_context(Client(self._target.uri))
            yield source, target

    def _prepare(self, source: Client) -> None:
        for name, kind in self._kinds.items():
            for database in (f"copied_{name}", f"live_{name}"):
                kind.before(source[database])
            kind.ddl(source[f"copied_{name}"])
            _write_after(source[f"copied_{name}"])
        Rows(source).write()

    def _configuration(self) -> str:
        return _CONFIGURATION.format(source=self._source.uri, target=self._target.uri)

    def _create(self) -> None:
        self._must("changefeed", "create", "-", "--timeout", "120", input=self._configuration())

    def _copied(self) -> bool:
        """The checkpoint leaves the changefeed's start when all tables are copied."""
        feed = self._asked("changefeed", "query", _FEED)
        if feed["state"] not in ("normal", "warning"):
            raise PairFailed(f"the changefeed is {feed['state']}: {feed.get('error')}")
        self._start = self._start or feed.get("checkpoint", "")
        return bool(feed.get("checkpoint", "") != self._start)

    def _finalized(self) -> bool:
        """Repeats the command after an interruption, as its help says."""
        try:
            self._must("changefeed", "finalize", _FEED, "--yes")
        except subprocess.TimeoutExpired:
            self._copied()
            return False
        return True

    def _change(self, source: Client, findings: Findings) -> None:
        middle = len(self._kinds) // 2
        for place, (name, kind) in enumerate(self._kinds.items()):
            if place == middle and self._accident:
                self._kill_the_owner()
                findings.looked_at(ACCIDENT)
            database = source[f"live_{name}"]
            kind.ddl(database)
            _write_after(database)

    def _kill_the_owner(self) -> None:
        """The other node takes over its work; the killed node restarts at once."""
        name = next(node["name"] for node in self._asked("node", "list") if node.get("owner"))
        victim = next(node for node in self._nodes if node.name == name)
        victim.kill()
        self._nodes.sort(key=lambda node: node is victim)
        victim.start()

    def _compared(self, source: Client, target: Client) -> Iterator[tuple[str, list[str]]]:
        for name, kind in self._kinds.items():
            for beginning, what in (("copied", COPY), ("live", kind.column)):
                for ending in ("", *((kind.elsewhere,) if kind.elsewhere else ())):
                    database = f"{beginning}_{name}{ending}"
                    found = differences(source, database, target, database)
                    yield what, [f"{database}: {difference}" for difference in found]
        yield ROWS, differences(source, _ROWS, target, _ROWS)

    def _asked(self, *arguments: str) -> Any:
        return json.loads(self._must(*arguments, "-o", "json"))

    def _must(self, *arguments: str, input: str | None = None) -> str:
        done = self._sluice(*arguments, input=input)
        if done.returncode != 0:
            raise PairFailed(f"sluice {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _sluice(self, *arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        return run(arguments, {"SLUICE_SERVER": self._nodes[0].address}, input)

    @staticmethod
    def _until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise PairFailed(f"{what} did not come to its end within {_DEADLINE_SECONDS:g} s")
            time.sleep(0.2)


class Rows:
    """Random changes of rows, during everything else."""

    def __init__(self, client: Client) -> None:
        self._db = client[_ROWS]
        self._operations = MixedOperations(seed=1)

    def write(self) -> str:
        for table in _ROW_TABLES:
            self._db[table].bulk_write(self._operations.batch())
        return "batches"


def _write_after(database: Database) -> None:
    """Writes a row to the table after its DDL; it arrives with the new schema."""
    if "t" in database.list_collection_names():
        database["t"].insert_one({"_id": "after", "a": 1000, "b": "after", "word": "after"})
