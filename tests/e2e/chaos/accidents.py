"""`Accidents`: how each event of the schedule is carried out. Each runs in its own thread and may take its time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from random import Random
from subprocess import CompletedProcess

from tests.e2e.chaos.bank import Bank
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.machines import Machines
from tests.e2e.chaos.schedule import SERVERS, Event, What
from tests.e2e.chaos.server_accidents import Happens, ServerAccidents

_DRAIN_SECONDS = 30


class Accidents:
    def __init__(
        self, machines: Machines, bank: Bank, servers: ServerAccidents, journal: Journal, over: threading.Event
    ) -> None:
        """Setting `over` ends the events that last."""
        self._machines = machines
        self._bank = bank
        self._journal = journal
        self._over = over
        self._servers = servers
        nodes, links = machines.nodes, machines.links
        self._turns = {name: threading.Lock() for name in nodes}
        """Who has ended a node starts it again before it is ended anew, however long a start takes."""
        self._how: Mapping[What, Happens] = {
            What.KILL: self._for_a_while(machines.kill, machines.start),
            What.FREEZE: self._for_a_while(lambda name: nodes[name].pause(), lambda name: nodes[name].resume()),
            What.BLOCK: self._for_a_while(lambda name: links[name].block(), lambda name: links[name].unblock()),
            What.PAUSE: self._for_a_while(self._command("pause"), self._command("resume")),
            What.CUT: self._cut,
            What.DRAIN: self._drain,
            What.MOVE: self._move,
            What.RESIGN: self._resign,
            What.SYNC: lambda event, random: self._bank.synchronise(),
        }

    def happen(self, event: Event, random: Random) -> None:
        if event.subject in SERVERS:
            self._servers.happen(event, random)
        elif event.what in (What.KILL, What.DRAIN):
            with self._turns[event.subject]:
                self._how[event.what](event, random)
        else:
            self._how[event.what](event, random)

    def _for_a_while(self, begin: Callable[[str], None], end: Callable[[str], None]) -> Happens:
        def happen(event: Event, random: Random) -> None:
            self._journal.tell(event.subject, f"{event.what}, for {event.lasts:.1f} s")
            begin(event.subject)
            self._over.wait(event.lasts)
            end(event.subject)
            self._journal.tell(event.subject, "back")

        return happen

    def _command(self, verb: str) -> Callable[[str], None]:
        return lambda id: self._tell(id, self._machines.sluice("changefeed", verb, id))  # noqa: A006  # the usual name

    def _tell(self, subject: str, done: CompletedProcess[str]) -> None:
        self._journal.tell(subject, (done.stdout or done.stderr).strip())

    def _cut(self, event: Event, random: Random) -> None:
        self._journal.tell(event.subject, event.what)
        self._machines.links[event.subject].cut()

    def _drain(self, event: Event, random: Random) -> None:
        name = event.subject
        self._tell(name, self._machines.sluice("node", "drain", name, "--yes", "--timeout", str(_DRAIN_SECONDS)))
        if self._machines.nodes[name].end() != 0:
            self._journal.fault(name, "did not end in good order in the time that it promises")
        self._machines.start(name)
        self._journal.tell(name, "back")

    def _move(self, event: Event, random: Random) -> None:
        tables, nodes = self._machines.asked("table", "list", "shop"), self._machines.asked("node", "list")
        if tables and nodes:
            table, node = random.choice(tables)["name"], random.choice(nodes)["name"]
            self._tell("shop", self._machines.sluice("table", "move", "shop", table, node))

    def _resign(self, event: Event, random: Random) -> None:
        self._tell("owner", self._machines.sluice("node", "resign", "--yes"))
