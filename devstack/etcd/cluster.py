"""`EtcdCluster`: several members of one etcd, and what can befall them."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from devstack.etcd.server import Etcd
from devstack.process import START_TIMEOUT_SECONDS, ServerFailed, side_by_side, wait_until


class EtcdCluster:
    """Each member is an `Etcd` to kill, freeze and start alone, as long as a majority runs."""

    def __init__(self, directory: Path, logs: Path, *, size: int = 3, quota_bytes: int | None = None) -> None:
        self.members = [
            Etcd(directory / name, logs / f"{name}.log", name=name, quota_bytes=quota_bytes)
            for name in (f"etcd-{number}" for number in range(size))
        ]
        for member in self.members:
            member.initial_cluster = ",".join(each.peer for each in self.members)

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> Self:
        """Starts the members that do not run; there is a leader then."""
        stopped = [member.start for member in self.members if not member.running]
        try:
            if stopped:
                side_by_side(stopped)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kills them: asked to end, the last would try for seconds to hand the lead over. May be called again."""
        for member in self.members:
            member.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def leader(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> Etcd:
        """The member that a majority follows; waits until there is one."""
        found: list[Etcd] = []

        def elected() -> bool:
            found[:] = [member for member in self.members if member.running and _leads(member)]
            return len(found) == 1

        if not wait_until(elected, timeout_seconds):
            raise ServerFailed(f"etcd had no leader for {timeout_seconds:.0f} s")
        return found[0]

    def fill_up(self) -> None:
        """Out of space: every member refuses to write."""
        self.leader().fill_up()

    def make_room(self) -> None:
        """What an operator does about it: compact, defragment each member, take the alarms back."""
        leader = self.leader()
        leader.compact()
        for member in self.members:
            member.defragment()
        leader.disarm()


def _leads(member: Etcd) -> bool:
    """A member that just lost its majority may say so of itself for a moment. One that is frozen says nothing."""
    try:
        status = member.ask("maintenance/status", timeout_seconds=1.0)
    except OSError:
        return False
    return "header" in status and status.get("leader") == status["header"]["member_id"]
