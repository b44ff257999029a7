"""`ReplicaSet`: several `mongod` that elect a primary, with their failures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_plus, urlencode

from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from devstack.mongodb.security import Security
from devstack.mongodb.server import Client, MongoDB
from devstack.process import START_TIMEOUT_SECONDS, ServerFailed, side_by_side, wait_until
from devstack.proxy import Loop, Proxy, opened_by

_HEARTBEATS_PER_ELECTION_TIMEOUT = 4
_MOST_HEARTBEAT_MS = 2_000
_PARTITION = "partition"
_ROLLED_BACK = "Rollback summary"


class ReplicaSet:
    """Each member is a `MongoDB` that can be killed, frozen and started alone.

    A `linked` set has a proxy in front of each member: clients and other members use the proxy's address; `cut_off` needs it.
    `hold_majority` and `roll_back` need `parameters=TESTING`.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        logs: Path,
        *,
        size: int = 3,
        election_timeout_ms: int = 10_000,
        linked: bool = False,
        security: Security | None = None,
        options: tuple[str, ...] = (),
        config_servers: bool = False,
        **settings: Any,
    ) -> None:
        self.name = name
        self._election_timeout_ms = election_timeout_ms
        self._linked = linked
        self._security = security
        self._config_servers = config_servers
        secured = security.server_options if security else ()
        self.members = [
            MongoDB(
                f"{name}-{n}",
                directory / f"{name}-{n}",
                logs / f"{name}-{n}.log",
                member_of=name,
                options=(*options, *secured),
                **settings,
            )
            for n in range(size)
        ]
        for member in self.members:
            member.tls = security.client_options if security else {}
        self.proxies: list[Proxy] = []
        self._running = ExitStack()

    @property
    def addresses(self) -> list[str]:
        """The addresses for clients and other members; those of a linked set are known after its start."""
        if self._linked:
            return [proxy.address for proxy in self.proxies]
        return [member.address for member in self.members]

    def address_of(self, member: MongoDB) -> str:
        return self.addresses[self.members.index(member)]

    @property
    def uri(self) -> str:
        return self.uri_of()

    def uri_of(self, user: str = "", password: str = "", **options: str) -> str:
        """A URI with everything that a client needs to connect, for a user if one is given."""
        tls = self._security.client_options if self._security else {}
        who = f"{quote_plus(user)}:{quote_plus(password)}@" if user else ""
        asked = {"replicaSet": self.name} | {
            name: str(value).lower() if value is True else value for name, value in tls.items()
        }
        return f"mongodb://{who}{','.join(self.addresses)}/?{urlencode(asked | options, safe='/')}"

    def client(self, **options: Any) -> Client:
        """A client of the set, as its administrator if it has users."""
        return Client(self.uri, **{**(self._security.administrator if self._security else {}), **options})

    def start(self) -> Self:
        """Starts all members, initiates a new set, and waits until it is complete."""
        with ExitStack() as stopping:
            if self._linked:
                loop = stopping.enter_context(Loop())
                self.proxies = [Proxy(loop, member.port) for member in self.members]
            stopping.callback(self._stop_all)
            side_by_side([member.start for member in self.members])
            self._initiate()
            self._elect()
            self._secure()
            self.wait_until_whole()
            self._running = stopping.pop_all()
        return self

    def stop(self) -> None:
        """Stops all members, also frozen ones. May be called again."""
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

    def wait_for_primary(
        self, timeout_seconds: float = START_TIMEOUT_SECONDS, *, beside: MongoDB | None = None
    ) -> MongoDB:
        """Waits for exactly one primary. `beside` is not counted: a member that was cut off calls itself primary for a while."""
        found: list[MongoDB] = []
        counted = [member for member in self.members if member is not beside]

        def elected() -> bool:
            found[:] = [m for m in counted if m.running and _state(m).get("isWritablePrimary")]
            return len(found) == 1

        if not wait_until(elected, timeout_seconds):
            raise ServerFailed(f"{self.name} had no primary for {timeout_seconds:.0f} s")
        return found[0]

    def wait_until_whole(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Waits for one primary with all others as its secondaries: before their initial sync ends, no write is majority-committed.

        And for the primary to know what the majority has: servers before 5.0 learn that by the first write of its term.
        """
        self.wait_for_primary(timeout_seconds)
        if not wait_until(lambda: len(self.secondaries()) == len(self.members) - 1, timeout_seconds):
            raise ServerFailed(
                f"{self.name}: not all members were secondaries of the primary after {timeout_seconds:.0f} s"
            )
        if not wait_until(lambda: "majorityOpTime" in _state(self.primary()).get("lastWrite", {}), timeout_seconds):
            raise ServerFailed(f"{self.name}: its majority had no write of its primary after {timeout_seconds:.0f} s")

    def step_down(self, seconds: int = 10, *, force: bool = False) -> None:
        """The primary becomes a secondary, and cannot be elected for this time. `force`: even if no other can be elected."""
        with self.primary().client() as client:
            try:
                client.admin.command(
                    "replSetStepDown", seconds, secondaryCatchUpPeriodSecs=0 if force else min(5, seconds), force=force
                )
            except AutoReconnect:
                return  # servers before 4.2 close the connection; later ones may close it during the election

    def cut_off(self, member: MongoDB, *, from_clients: bool = True) -> None:
        """Separates the member from the others in both directions until `reconnect`, and by default from clients, too."""
        others = [other for other in self.members if other is not member]
        for other, proxy in zip(self.members, self.proxies, strict=True):
            if other is not member:
                proxy.block(_PARTITION, opened_by(lambda: member.processes))
            elif from_clients:
                proxy.block(_PARTITION)
            else:
                proxy.block(_PARTITION, opened_by(lambda: [process for each in others for process in each.processes]))

    def reconnect(self) -> None:
        """Ends `cut_off`; the bytes that were held back arrive."""
        for proxy in self.proxies:
            proxy.unblock(_PARTITION)

    def hold_majority(self) -> None:
        """Stops replication to the secondaries while the primary stays primary: later writes are not majority-committed.

        A member that is restarted meanwhile replicates again.
        """
        self._hold_replication("alwaysOn", self.secondaries())

    def release_majority(self) -> None:
        """Ends `hold_majority`; the secondaries catch up within a second or two."""
        self._hold_replication("off", [member for member in self.members if member.running])

    def mend(self) -> None:
        """Undoes all failures: all members run, are connected and replicate from the primary."""
        for member in self.members:
            if member.running:
                member.resume()
        side_by_side([member.start for member in self.members if not member.running])
        self.reconnect()
        self.release_majority()
        self.wait_until_whole()

    def roll_back(self, write: Callable[[], object], *, freeze: bool = False) -> None:
        """Calls `write`, which reaches the primary only; then the others elect a new primary, and the old one rolls the write back.

        The old primary is killed, or frozen, until the election, and until each of the others has an entry of the new term: else one of them
        might elect the old one again on a slow machine, and the write would stay. Returns when it has rolled back and is a secondary.
        """
        old = self.primary()
        before = _rollbacks(old)
        self.hold_majority()
        write()
        _make_durable(old, members=1)
        old.pause() if freeze else old.kill()
        self._hold_replication("off", [member for member in self.members if member is not old])
        _make_durable(self.wait_for_primary(beside=old), members=len(self.members) - 1)
        old.resume() if freeze else old.start()
        if not wait_until(lambda: _rollbacks(old) > before, START_TIMEOUT_SECONDS):
            raise ServerFailed(f"{old.name} did not roll back within {START_TIMEOUT_SECONDS:.0f} s")
        self.wait_until_whole()

    def _initiate(self) -> None:
        with self.members[0].client() as client:
            if "setName" in client.admin.command("hello"):
                return
            members = [{"_id": number, "host": address} for number, address in enumerate(self.addresses)]
            settings = {
                "electionTimeoutMillis": self._election_timeout_ms,
                "heartbeatIntervalMillis": min(
                    _MOST_HEARTBEAT_MS, self._election_timeout_ms // _HEARTBEATS_PER_ELECTION_TIMEOUT
                ),
                "heartbeatTimeoutSecs": max(1, self._election_timeout_ms // 1000),
            }
            role = {"configsvr": True} if self._config_servers else {}
            client.admin.command(
                "replSetInitiate", {"_id": self.name, **role, "members": members, "settings": settings}
            )

    def _elect(self) -> None:
        """Starts the election at once; otherwise it would start after `election_timeout_ms`."""

        def elected() -> bool:
            if any(_state(member).get("isWritablePrimary") for member in self.members):
                return True
            with (
                self.members[0].client() as client,
                suppress(OperationFailure),
            ):  # it is refused until the others know the set
                client.admin.command("replSetStepUp")
            return False

        if not wait_until(elected, START_TIMEOUT_SECONDS):
            raise ServerFailed(f"{self.name} elected no primary within {START_TIMEOUT_SECONDS:.0f} s")

    def _secure(self) -> None:
        """Creates the first user over the localhost exception; afterwards every client has to authenticate."""
        if self._security is None or self.members[0].user:
            return
        user = self._security.administrator
        with self.primary().stranger() as client:
            client.admin.command("createUser", user["username"], pwd=user["password"], roles=["root", "__system"])
        for member in self.members:
            member.user = user

    def _stop_all(self) -> None:
        """Uses kill -9: on a normal stop each member waits 15 s for another to become primary, but those stop, too."""
        side_by_side([member.kill for member in self.members])

    @staticmethod
    def _hold_replication(mode: str, members: list[MongoDB]) -> None:
        for member in members:
            with member.client() as client:
                client.admin.command("configureFailPoint", "stopReplProducer", mode=mode)


def _state(member: MongoDB) -> dict[str, Any]:
    """The member's reply to `hello`; empty if it does not answer within a second."""
    try:
        with member.stranger(serverSelectionTimeoutMS=1000, socketTimeoutMS=1000, connectTimeoutMS=1000) as client:
            return client.admin.command("hello")
    except PyMongoError:
        return {}


def _make_durable(primary: MongoDB, *, members: int) -> None:
    """Makes earlier writes survive a kill of so many members."""
    concern = {"w": members, "j": True}
    with primary.client() as client:
        client.admin.command("appendOplogNote", 1, data={"devstack": "durable"}, writeConcern=concern)


def _rollbacks(member: MongoDB) -> int:
    return member.log.read_text(encoding="utf-8", errors="replace").count(_ROLLED_BACK)
