"""`ReplicaSet`: several `mongod` that elect a primary, and what can befall them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from devstack.mongodb import MongoDB
from devstack.process import START_TIMEOUT_SECONDS, ServerFailed, side_by_side, wait_until


class ReplicaSet:
    """Each member is a `MongoDB` to kill, freeze and start alone.

    `addresses` of the members as clients and other members shall see them, where something stands in front of them.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        logs: Path,
        *,
        size: int = 3,
        election_timeout_ms: int = 10_000,
        **options: Any,
    ) -> None:
        self.name = name
        self._election_timeout_ms = election_timeout_ms
        self.members = [
            MongoDB(f"{name}-{n}", directory / f"{name}-{n}", logs / f"{name}-{n}.log", member_of=name, **options)
            for n in range(size)
        ]
        self.addresses = [member.address for member in self.members]
        self._running = ExitStack()

    @property
    def uri(self) -> str:
        return f"mongodb://{','.join(self.addresses)}/?replicaSet={self.name}"

    def start(self) -> Self:
        """Up, with a primary and all others its secondaries; initiated when it is new."""
        with ExitStack() as stopping:
            stopping.callback(self._stop_all)
            side_by_side([member.start for member in self.members])
            self._initiate()
            self._elect()
            self._wait_for_secondaries()
            self._running = stopping.pop_all()
        return self

    def stop(self) -> None:
        """Frozen members too. May be called again."""
        self._running.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def primary(self) -> MongoDB:
        for member in self.members:
            if member.running and _state(member).get("isWritablePrimary"):
                return member
        raise ServerFailed(f"{self.name} has no primary")

    def secondaries(self) -> list[MongoDB]:
        return [member for member in self.members if member.running and _state(member).get("secondary")]

    def wait_for_primary(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> MongoDB:
        """One that a majority sees as such: after a partition an old primary may take itself for one still."""
        found: list[MongoDB] = []

        def elected() -> bool:
            found[:] = [m for m in self.members if m.running and _state(m).get("isWritablePrimary")]
            return len(found) == 1

        if not wait_until(elected, timeout_seconds):
            raise ServerFailed(f"{self.name} had no primary for {timeout_seconds:.0f} s")
        return found[0]

    def step_down(self, seconds: int = 10) -> None:
        """The primary becomes a secondary, and stays one for so long."""
        with self.primary().client() as client:
            try:
                client.admin.command("replSetStepDown", seconds, secondaryCatchUpPeriodSecs=min(5, seconds))
            except AutoReconnect:
                return  # servers before 4.2 close the connection; later ones may while they elect

    def hold_majority(self) -> None:
        """Secondaries take nothing over any more, and the primary stays primary: what is written from now on is not majority-committed.

        Members need `parameters=TESTING`. A member that is started again while this holds takes part again.
        """
        self._hold_replication("alwaysOn", self.secondaries())

    def release_majority(self) -> None:
        """The secondaries catch up, within a second or two."""
        self._hold_replication("off", [member for member in self.members if member.running])

    def _initiate(self) -> None:
        with self.members[0].client() as client:
            if "setName" in client.admin.command("hello"):
                return
            members = [{"_id": number, "host": address} for number, address in enumerate(self.addresses)]
            settings = {"electionTimeoutMillis": self._election_timeout_ms}
            client.admin.command("replSetInitiate", {"_id": self.name, "members": members, "settings": settings})

    def _elect(self) -> None:
        """Asks for the election that would else come when `election_timeout_ms` is over."""

        def elected() -> bool:
            if any(_state(member).get("isWritablePrimary") for member in self.members):
                return True
            with (
                self.members[0].client() as client,
                suppress(OperationFailure),
            ):  # refused until the others know the set
                client.admin.command("replSetStepUp")
            return False

        if not wait_until(elected, START_TIMEOUT_SECONDS):
            raise ServerFailed(f"{self.name} elected no primary within {START_TIMEOUT_SECONDS:.0f} s")

    def _wait_for_secondaries(self) -> None:
        """Until their first copy of the data is done, nothing is majority-committed."""
        others = len(self.members) - 1
        if not wait_until(lambda: len(self.secondaries()) == others, START_TIMEOUT_SECONDS):
            raise ServerFailed(f"{self.name} had not {others} secondaries within {START_TIMEOUT_SECONDS:.0f} s")

    def _stop_all(self) -> None:
        side_by_side([member.stop for member in self.members])

    @staticmethod
    def _hold_replication(mode: str, members: list[MongoDB]) -> None:
        for member in members:
            with member.client() as client:
                client.admin.command("configureFailPoint", "stopReplProducer", mode=mode)


def _state(member: MongoDB) -> dict[str, Any]:
    """What the member says of itself; nothing when it does not answer within a second."""
    try:
        with member.client(serverSelectionTimeoutMS=1000, socketTimeoutMS=1000, connectTimeoutMS=1000) as client:
            return client.admin.command("hello")
    except PyMongoError:
        return {}
