"""`PrincipalCopy`: keeps the target's users and roles as the source's are, for a changefeed with `users: true`.

Both sides are looked at every ten seconds. What is to be written is recorded first, then looked at again, then written: a new owner goes on
from the record. Two owners at once can only do the same; what an old one wrote of an older state, the new one's next look sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import structlog

from changefeed.errors import SluiceError, UsersNotReplicated
from changefeed.users.principals import PrincipalChanges, PrincipalNames, Principals
from owner.background import Background

_EVERY_SECONDS = 10.0
MOST = 10_000
"""Users and roles: their names are one value in etcd."""

_log = structlog.get_logger()


class PrincipalTarget(Protocol):
    """Its methods wait for the target."""

    def read(self, roles: frozenset[str]) -> Principals: ...
    def apply(self, changes: PrincipalChanges) -> None: ...


class PrincipalCopy:
    """Never waits. `read_source` and the target's methods do, in threads."""

    def __init__(
        self,
        changefeed: str,
        background: Background,
        read_source: Callable[[], Principals],
        target: PrincipalTarget,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._background = background
        self._read_source = read_source
        self._target = target
        self._log = _log.bind(changefeed=changefeed)
        self._next_at = float("-inf")
        self._to_apply: PrincipalChanges | None = None
        self.error: UsersNotReplicated | None = None

    def tick(self, written: PrincipalNames) -> PrincipalNames | None:
        """`written`: as it is recorded. Returns what is to be recorded instead, before the next tick."""
        if self._monotonic() < self._next_at:
            return None
        try:
            if self._to_apply is not None:
                self._apply(self._to_apply)
                return None
            changes: PrincipalChanges | None = self._background.take("principals", lambda: self._look(written))
        except SluiceError as error:
            self.error = UsersNotReplicated(f"users and roles: {error}; tables are replicated without them")
            self._to_apply, self._next_at = None, self._monotonic() + _EVERY_SECONDS
            self._log.warning("principals_not_copied", error=str(error))
            return None
        if changes is None:
            return None
        if changes.written != written:
            return changes.written
        if changes.any:
            self._to_apply = changes
        else:
            self.error, self._next_at = None, self._monotonic() + _EVERY_SECONDS
        return None

    def _look(self, written: PrincipalNames) -> PrincipalChanges:
        source = self._read_source()
        if source.names.count > MOST:
            raise UsersNotReplicated(
                f"the source has {source.names.count}, and at most {MOST} are replicated; set users: false"
            )
        target = self._target.read(frozenset(source.roles.keys() | written.roles))
        return PrincipalChanges.between(source, target, written)

    def _apply(self, changes: PrincipalChanges) -> None:
        if self._background.take("principals written", lambda: self._written(changes)):
            self._to_apply = None
            self._log.info(
                "principals_copied", users=len(changes.users), roles=len(changes.roles), dropped=changes.dropped.count
            )

    def _written(self, changes: PrincipalChanges) -> bool:
        self._target.apply(changes)
        return True
