"""`Chaos`: three nodes replicate two changefeeds during accidents to the nodes and to all servers that they use.

    copy and replication ──▶ the schedule's events, in parallel ──▶ all is mended ──▶ both sides are equal, no money is lost

Faults are: a changefeed that fails, a process that ends by itself or does not end when told to, a wrong sum at a sync point, a
difference at the end. Divergence fails a changefeed here (`on_divergence: fail`), so that no repair hides a fault.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout, decode
from coordination.mirror import Mirror
from devstack.mongodb.server import Client
from tests.e2e.chaos import bank, ghosts
from tests.e2e.chaos.accidents import Accidents
from tests.e2e.chaos.bank import Bank
from tests.e2e.chaos.ghosts import Ghosts
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.machines import CLUSTER, Machines
from tests.e2e.chaos.schedule import schedule
from tests.e2e.chaos.server_accidents import ServerAccidents
from tests.e2e.chaos.workload import Repeated, Workload
from tests.independent_compare import differences

_TRANSFER_SECONDS = 0.1
_LOOK_SECONDS = 0.5
_CONVERGE_SECONDS = 300.0
_SHOP = """
id: shop
source: {source}
sink: {target}
start: initial
on_divergence: fail
filter: {{tables: [{tables}]}}
"""


class Chaos:
    def __init__(self, directory: Path, *, seconds: float, seed: int) -> None:
        self.journal = Journal()
        self._seconds = seconds
        self._seed = seed
        self._directory = directory
        self._machines = Machines(directory, self.journal)
        self._over = threading.Event()
        """Set when a fault makes the rest of the run pointless."""
        self._states: dict[str, State] = {}
        self._layout = Layout(CLUSTER)

    def run(self) -> bool:
        """Whether nothing went wrong."""
        with ExitStack() as running:
            machines = running.enter_context(self._machines)
            self._source: Client = running.enter_context(machines.sets["source"].client())
            self._target: Client = running.enter_context(machines.sets["target"].client())
            etcd = running.enter_context(EtcdClient(EtcdConfig(endpoints=machines.etcd.endpoints)))
            self._mirror = Mirror(etcd, self._layout.root)
            self._mirror.start()
            running.callback(self._mirror.stop)
            self._bank = Bank(machines, self._source, self._target, self.journal, self._seed)
            workload = Workload(self._source, self._seed)
            self._ghosts = Ghosts(self._source)
            self._databases = (*workload.databases, bank.DATABASE, ghosts.DATABASE)
            self._begin(workload)
            transfers = Repeated("transfers", self._bank.transfer, _TRANSFER_SECONDS)
            looks = running.enter_context(Repeated("looks", self._look, _LOOK_SECONDS))
            with workload, transfers:
                self._let_happen()
                if not self._over.is_set():
                    self._mend()
            self.journal.tell("workload", f"{workload.summary()}, {transfers.done.total()} transfers")
            if not self._over.is_set():
                self._converge()
            looks.stop()
        return not self.journal.faults

    def _begin(self, workload: Workload) -> None:
        workload.prepare()
        self._ghosts.prepare()
        self._bank.open()
        file = self._directory / "shop.yaml"
        source, target = self._machines.uris
        tables = ", ".join(f'"{name}.*"' for name in (*workload.databases, ghosts.DATABASE))
        file.write_text(_SHOP.format(source=source, target=target, tables=tables), encoding="utf-8")
        done = self._machines.sluice("changefeed", "create", str(file))
        if done.returncode != 0:
            self.journal.fault("shop", f"not created: {done.stderr}")

    def _let_happen(self) -> None:
        began = time.monotonic()
        events = schedule(self._seed, self._seconds)
        servers = ServerAccidents(self._machines, self._ghosts, self.journal, self._over)
        accidents = Accidents(self._machines, self._bank, servers, self.journal, self._over)
        happening: list[Future[None]] = []
        with ThreadPoolExecutor(len(events) or 1, thread_name_prefix="event") as threads:
            for index, event in enumerate(events):
                if self._over.wait(max(0.0, began + event.at - time.monotonic())):
                    break
                happening.append(threads.submit(accidents.happen, event, Random(f"{self._seed} {index}")))
        for event_over in happening:
            event_over.result()

    def _look(self) -> str:
        """Ends the run when a changefeed or a node failed, so that the cause is at the end of the logs."""
        for id, state, error in self._lifecycles():
            if self._states.get(id) != state:
                self._states[id] = state
                self.journal.tell(id, f"{state} {error}".strip())
                if state is State.FAILED:
                    self.journal.fault(id, error)
                    self._over.set()
        for name, node in self._machines.nodes.items():
            if node.wanted and not node.running:
                node.wanted = False
                self.journal.fault(name, "its process ended by itself")
                self._over.set()
        return "looks"

    def _lifecycles(self) -> Iterator[tuple[str, State, str]]:
        """The lifecycles in etcd, or those last read while etcd is unavailable."""
        view = self._mirror.view()
        for id in ("shop", "bank"):
            found = view.get(self._layout.status(ChangefeedId(id)))
            if found is not None:
                lifecycle = decode(ChangefeedStatus, found).lifecycle
                yield id, lifecycle.state, lifecycle.error.message if lifecycle.error else ""

    def _mend(self) -> None:
        self.journal.tell("all", "mended")
        for link in self._machines.links.values():
            link.unblock()
        for members in self._machines.sets.values():
            members.wait_until_whole()
        for id in ("shop", "bank"):
            done = self._machines.sluice("changefeed", "resume", id)
            self.journal.tell(id, (done.stdout or done.stderr).strip())

    def _converge(self) -> None:
        began = time.monotonic()
        while found := self._differences():
            if time.monotonic() > began + _CONVERGE_SECONDS or self._over.is_set():
                for difference in found:
                    self.journal.fault("difference", difference)
                return
            time.sleep(1)
        self.journal.tell("all", f"both sides are equal, {time.monotonic() - began:.0f} s after the last write")
        for seen in self._ghosts.seen(self._target):
            self.journal.fault("ghosts", f"rolled back at the source, and yet it was at the target: {seen}")
        self._bank.synchronise()
        self.journal.tell("bank", f"{self._bank.syncs} sync points")

    def _differences(self) -> list[str]:
        return [
            difference
            for database in self._databases
            for difference in differences(self._source, database, self._target, database)
        ]
