"""`FeedIdentity`: whose files these are. One changefeed, since one start: restarted, it begins again from nothing, and needs another place."""

from __future__ import annotations

import json
from dataclasses import dataclass

from changefeed.errors import SinkUnavailable, TargetOccupied
from sink.files.manifest import IDENTITY, VERSION
from sink.files.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedIdentity:
    """`life`: differs for each creation and each restart of a changefeed."""

    feed: str
    life: str

    def claim(self, store: Store) -> None:
        """When the changefeed begins. The store is its own from now on, if it was nobody's. Raises if it is another one's."""
        store.check()
        store.create(IDENTITY, self._content)
        self.confirm(store)

    def confirm(self, store: Store) -> None:
        """Raises if this is not the store of this changefeed.

        Where its file system is not mounted there is an empty directory, or none. So whoever writes a file that counts confirms *behind* it,
        before a checkpoint passes it.
        """
        found = store.read(IDENTITY)
        if found is None:
            raise SinkUnavailable(
                f"{store}: expected {IDENTITY} of changefeed {self.feed!r}, found none; {store.if_empty}"
            )
        if found != self._content:
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {store} has the files of {found.decode(errors='replace')}, expected none or "
                f"those of {self._content.decode()}; a changefeed that begins again needs an empty place"
            )

    @property
    def _content(self) -> bytes:
        return json.dumps({"v": VERSION, "feed": self.feed, "life": self.life}).encode()
