"""`FeedIdentity`: whose directory it is. One changefeed, since one start: restarted, it begins again from nothing, and needs another one."""

from __future__ import annotations

import json
from dataclasses import dataclass

from changefeed.errors import TargetOccupied
from sink.files.directory import Directory
from sink.files.manifest import IDENTITY, VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedIdentity:
    """`life`: differs for each creation and each restart of a changefeed."""

    feed: str
    life: str

    def claim(self, directory: Directory) -> None:
        """The directory is this changefeed's from now on, if it was nobody's. Raises if it is another one's."""
        content = json.dumps({"v": VERSION, "feed": self.feed, "life": self.life}).encode()
        if not directory.create_same(IDENTITY, content):
            found = (directory.read(IDENTITY) or b"").decode(errors="replace")
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {directory.path} is the directory of {found}, expected an empty one or that of "
                f"{content.decode()}; a changefeed that begins again needs an empty directory"
            )
