"""`EtcdCluster`: several members of one etcd, with their failures."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from devstack.etcd.server import EtcdServer
from devstack.process import START_TIMEOUT_SECONDS, ServerFailed, side_by_side, wait_until


class EtcdCluster:
    """Each member is an `EtcdServer` that can be killed, frozen and started alone; a majority has to run."""

    def __init__(self, directory: Path, logs: Path, *, size: int = 3, quota_bytes: int | None = None) -> None:
        self.members = [
            EtcdServer(directory / name, logs / f"{name}.log", name=name, quota_bytes=quota_bytes)
            for name in (f"etcd-{number}" for number in range(size))
        ]
        for member in self.members:
            member.initial_cluster = ",".join(each.peer for each in self.members)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> Self:
        """Starts the members that do not run; the cluster then has a leader."""
        stopped = [member.start for member in self.members if not member.running]
        try:
            if stopped:
                side_by_side(stopped)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kills all members: on a normal stop the last one would try for seconds to transfer leadership. May be called again."""
        for member in self.members:
            member.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def leader(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> EtcdServer:
        """Waits until a majority follows one member, and returns it."""
        found: list[EtcdServer] = []

        def elected() -> bool:
            found[:] = [member for member in self.members if member.running and _leads(member)]
            return len(found) == 1

        if not wait_until(elected, timeout_seconds):
            raise ServerFailed(f"etcd had no leader for {timeout_seconds:.0f} s")
        return found[0]

    def fill_up(self) -> None:
        """Fills the database: every member then refuses writes."""
        self.leader().fill_up()

    def make_room(self) -> None:
        """Does what an operator does: compact, defragment each member, disarm the alarms."""
        leader = self.leader()
        leader.compact()
        for member in self.members:
            member.defragment()
        leader.disarm()


def _leads(member: EtcdServer) -> bool:
    """A member that has just lost its majority may still call itself leader for a moment. A frozen one does not answer."""
    try:
        status = member.ask("maintenance/status", timeout_seconds=1.0)
    except OSError:
        return False
    return "header" in status and status.get("leader") == status["header"]["member_id"]
