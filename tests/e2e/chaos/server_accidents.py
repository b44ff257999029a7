"""`ServerAccidents`: accidents of etcd, source and target. Their members come back with their data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from random import Random

from devstack.process import ServerFailed, ServerProcess, side_by_side
from tests.e2e.chaos.ghosts import Ghosts
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.machines import Machines
from tests.e2e.chaos.schedule import SERVERS, Event, What

Happens = Callable[[Event, Random], None]


class ServerAccidents:
    """Runs one accident at a time for each server, which is whole before and after it."""

    def __init__(self, machines: Machines, ghosts: Ghosts, journal: Journal, over: threading.Event) -> None:
        """Setting `over` ends the accidents that last."""
        self._sets = machines.sets
        self._etcd = machines.etcd
        self._ghosts = ghosts
        self._journal = journal
        self._over = over
        self._busy = {server: threading.Lock() for server in SERVERS}
        self._how: Mapping[What, Happens] = {
            What.RESTART: self._restart_all,
            What.KILL_LEADER: self._kill_leader,
            What.FREEZE_LEADER: self._freeze_leader,
            What.MEMBER_DOWN: self._keep_one_down,
            What.STEP_DOWN: lambda event, _: self._sets[event.subject].step_down(),
            What.PARTITION: self._partition,
            What.ROLL_BACK: self._roll_back,
            What.HOLD: self._hold,
            What.FULL: self._fill_up,
        }

    def happen(self, event: Event, random: Random) -> None:
        with self._busy[event.subject]:
            self._journal.tell(event.subject, f"{event.what}, for {event.lasts:.1f} s")
            try:
                self._how[event.what](event, random)
                self._wait_until_whole(event.subject)
            except ServerFailed as failed:
                self._journal.fault(event.subject, str(failed))
                self._over.set()
            self._journal.tell(event.subject, "whole again")

    def _wait_until_whole(self, server: str) -> None:
        if server in self._sets:
            self._sets[server].wait_until_whole()
        else:
            self._etcd.leader()

    def _members(self, server: str) -> list[ServerProcess]:
        return [*self._sets[server].members] if server in self._sets else [*self._etcd.members]

    def _leader(self, server: str) -> ServerProcess:
        return self._sets[server].primary() if server in self._sets else self._etcd.leader()

    def _restart_all(self, event: Event, _: Random) -> None:
        members = self._members(event.subject)
        for member in members:
            member.kill()
        self._over.wait(event.lasts)
        side_by_side([member.start for member in members])

    def _kill_leader(self, event: Event, _: Random) -> None:
        self._keep_down(self._leader(event.subject), event.lasts)

    def _keep_one_down(self, event: Event, random: Random) -> None:
        leader = self._leader(event.subject)
        others = [member for member in self._members(event.subject) if member is not leader]
        self._keep_down(random.choice(others), event.lasts)

    def _keep_down(self, member: ServerProcess, seconds: float) -> None:
        member.kill()
        self._over.wait(seconds)
        member.start()

    def _freeze_leader(self, event: Event, _: Random) -> None:
        leader = self._leader(event.subject)
        leader.pause()
        self._over.wait(event.lasts)
        leader.resume()

    def _partition(self, event: Event, _: Random) -> None:
        members = self._sets[event.subject]
        members.cut_off(members.primary(), from_clients=False)
        self._over.wait(event.lasts)
        members.reconnect()

    def _roll_back(self, event: Event, random: Random) -> None:
        """Rolls back ghosts at the source, and the rows replicated meanwhile at the target."""
        members = self._sets[event.subject]

        def write() -> None:
            if event.subject == "source":
                self._ghosts.appear(members.primary())
            self._over.wait(event.lasts)

        members.roll_back(write, freeze=random.random() < 0.5)

    def _hold(self, event: Event, _: Random) -> None:
        self._sets[event.subject].hold_majority()
        self._over.wait(event.lasts)
        self._sets[event.subject].release_majority()

    def _fill_up(self, event: Event, _: Random) -> None:
        self._etcd.fill_up()
        self._over.wait(event.lasts)
        self._etcd.make_room()
