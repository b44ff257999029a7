"""`PrincipalCopy`: keeps the target's users and roles as the source's are, for a changefeed with `users: true`.

Both sides are looked at every ten seconds. What is to be written is recorded first, then looked at again, then written: a new owner goes on
from the record. Two owners at once can only do the same; what an old one wrote of an older state, the new one's next look sees.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from changefeed.errors import SluiceError, UsersNotReplicated
from changefeed.users import PrincipalChanges, PrincipalNames, Principals
from owner.background import Background, Chore
from sink.sink import PrincipalTarget

_EVERY_SECONDS = 10.0
MOST = 10_000
"""Users and roles: their names are one value in etcd."""

_log = structlog.get_logger()


class PrincipalCopy:
    """Never waits. `read_source` and the target's methods do, in threads."""

    def __init__(
        self, changefeed: str, background: Background, read_source: Callable[[], Principals], target: PrincipalTarget
    ) -> None:
        self._read_source = read_source
        self._target = target
        self._log = _log.bind(changefeed=changefeed)
        self._look = Chore[PrincipalChanges](background, "principals", _EVERY_SECONDS, self._failed)
        self._write = Chore[None](background, "principals written", 0.0, self._failed)
        self._to_write: PrincipalChanges | None = None
        self.error: UsersNotReplicated | None = None

    def tick(self, written: PrincipalNames) -> PrincipalNames | None:
        """`written`: as it is recorded. Return what is to be recorded instead, before the next tick."""
        if self._to_write is not None:
            self._go_on_writing(self._to_write)
            return None
        if not self._look.tick(lambda: self._difference(written)) or self._look.answer is None:
            return None
        changes = self._look.answer
        if changes.written != written:
            self._look.hurry()
            return changes.written
        if changes.any:
            self._to_write = changes
        else:
            self.error = None
        return None

    def _failed(self, error: SluiceError) -> None:
        self.error = UsersNotReplicated(f"users and roles: {error}; tables are replicated without them")
        self._to_write = None
        self._log.warning("principals_not_copied", error=str(error))

    def _difference(self, written: PrincipalNames) -> PrincipalChanges:
        source = self._read_source()
        if source.names.count > MOST:
            raise UsersNotReplicated(
                f"the source has {source.names.count}, and at most {MOST} are replicated; set users: false"
            )
        target = self._target.read(frozenset(source.roles.keys() | written.roles))
        return PrincipalChanges.between(source, target, written)

    def _go_on_writing(self, changes: PrincipalChanges) -> None:
        if self._write.tick(lambda: self._target.apply(changes)):
            self._to_write = None
            self._look.hurry()
            self._log.info(
                "principals_copied", users=len(changes.users), roles=len(changes.roles), dropped=changes.dropped.count
            )
