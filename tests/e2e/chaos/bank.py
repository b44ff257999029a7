"""`Bank`: transactions move money between accounts of several collections; no accident may create or lose money.

At a *sync point* a changefeed has reached its `target`: `sluice changefeed finalize` sets the source's current time as target, every
table is replicated exactly up to it, and the changefeed finishes. All events of a transaction have one cluster time, so a target
database at one time holds each transaction whole or not at all, while transfers continue at the source. Afterwards the changefeed gets a
configuration without a target, and is resumed.
"""

from __future__ import annotations

import threading
import time
from random import Random

from pymongo.errors import PyMongoError

from devstack.mongodb.server import Client
from tests.e2e.chaos.journal import Journal
from tests.e2e.chaos.machines import Machines

DATABASE = "bank"
_BRANCHES = [f"branch_{number}" for number in range(4)]
_ACCOUNTS = 10
_EACH = 1000
TOTAL = len(_BRANCHES) * _ACCOUNTS * _EACH
_SECONDS = 600.0
"""A verb that is not done by then is a fault, however often it was interrupted."""
_CONFIGURATION = f"""
id: bank
source: {{source}}
sink: {{target}}
start: initial
on_divergence: fail
filter: {{{{tables: ["{DATABASE}.*"]}}}}
"""


class Bank:
    def __init__(self, machines: Machines, source: Client, target: Client, journal: Journal, seed: int) -> None:
        self._machines = machines
        self._source, self._target = source, target
        self._journal = journal
        self._random = Random(f"{seed} bank")
        self._file = machines.directory / "bank.yaml"
        self._synchronising = threading.Lock()
        self.syncs = 0

    def open(self) -> None:
        for branch in _BRANCHES:
            self._source[DATABASE][branch].insert_many([{"_id": n, "balance": _EACH} for n in range(_ACCOUNTS)])
        source, target = self._machines.uris
        self._file.write_text(_CONFIGURATION.format(source=source, target=target), encoding="utf-8")
        self._do("create", str(self._file))

    def transfer(self) -> str:
        """One transfer, in a transaction over two collections."""
        (giver, taker), amount = self._random.sample(_BRANCHES, 2), self._random.randrange(100)
        accounts = [self._random.randrange(_ACCOUNTS) for _ in range(2)]
        with self._source.start_session() as session, session.start_transaction():
            for branch, account, change in ((giver, accounts[0], -amount), (taker, accounts[1], amount)):
                balances = self._source[DATABASE][branch]
                balances.update_one({"_id": account}, {"$inc": {"balance": change}}, session=session)
        return "transfers"

    def synchronise(self) -> None:
        """Brings the target to one time of the source, counts the money there, and resumes replication. One call at a time."""
        if not self._synchronising.acquire(blocking=False):
            return
        try:
            if self._do("finalize", "bank", "--yes"):
                self._count()
                self._do("update", "bank", str(self._file), "--yes")
                self._do("resume", "bank")
        finally:
            self._synchronising.release()

    def _count(self) -> None:
        """Counts collection by collection: while the changefeed is finished, nothing changes at the target."""
        try:
            found = sum(row["balance"] for branch in _BRANCHES for row in self._target[DATABASE][branch].find())
        except PyMongoError as error:
            self._journal.tell("bank", f"could not be counted: {type(error).__name__}")
            return
        self.syncs += 1
        if found == TOTAL:
            self._journal.tell("bank", f"the target has all {TOTAL}")
        else:
            self._journal.fault("bank", f"the target has {found}, not {TOTAL}")

    def _do(self, verb: str, *arguments: str) -> bool:
        """Repeats the verb until it succeeds: each verb may be repeated after an interruption."""
        deadline, told = time.monotonic() + _SECONDS, ""
        while (done := self._machines.sluice("changefeed", verb, *arguments)).returncode != 0:
            if time.monotonic() > deadline:
                self._journal.fault("bank", f"{verb} is not done after {_SECONDS:g} s: {done.stderr.strip()}")
                return False
            if told != done.stderr:
                told = done.stderr
                self._journal.tell("bank", f"{verb}: {told.strip()}")
            time.sleep(1)
        return True
