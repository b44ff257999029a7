"""`FeedIdentity`: whose directory it is. One changefeed, since one start: restarted, it begins again from nothing, and needs another one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from changefeed.errors import SinkUnavailable, TargetOccupied
from sink.files.directory import Directory
from sink.files.manifest import IDENTITY, VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedIdentity:
    """`life`: differs for each creation and each restart of a changefeed."""

    feed: str
    life: str

    def claim(self, directory: Directory) -> None:
        """When the changefeed begins. The directory is its own from now on, if it was nobody's. Raises if it is another one's."""
        directory.check()
        directory.create(IDENTITY, self._content)
        self.confirm(directory)

    def confirm(self, directory: Directory) -> None:
        """Raises if this is not the directory of this changefeed.

        Where its file system is not mounted there is an empty directory, or none. So whoever writes a file that counts confirms *behind* it,
        before a checkpoint passes it.
        """
        found = directory.read(IDENTITY)
        if found is None:
            raise SinkUnavailable(
                f"{directory.path}: expected {IDENTITY} of changefeed {self.feed!r}, found none; is its file system mounted here?"
            )
        if found != self._content:
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {directory.path} is the directory of {found.decode(errors='replace')}, expected an empty one or "
                f"that of {self._content.decode()}; a changefeed that begins again needs an empty directory"
            )

    @property
    def _content(self) -> bytes:
        return json.dumps({"v": VERSION, "feed": self.feed, "life": self.life}).encode()
