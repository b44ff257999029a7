"""`FileLeftovers`: removes what nodes that are gone wrote and never committed.

    seal      log/<epoch>/<number>.json, by put-create behind the node's last manifest: under this epoch nothing can be committed any more
    remove    each file in data/<epoch>/ that no manifest of this epoch names

A node that lives on without its session finds the seal when it commits, and is refused; its window is run again by another node. So it is
safe to be wrong about who is gone. A task of such a node may still write files; they are removed in the next owner's term.

The manifests are read by their numbers, and not as a listing shows them, because a listing may be old on a network file system. A
put-create is not: numbers have no holes, so each one below the seal is a manifest that must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from changefeed.errors import SinkUnavailable
from sink.files.identity import FeedIdentity
from sink.files.manifest import DATA, LOG, Manifest, number_name, number_of
from sink.files.stores.store import Store


class FileLeftovers:
    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store
        self._swept: set[str] = set()

    def sweep(self, gone: Callable[[int], bool]) -> int:
        """`gone`: whether the node of this epoch is. Returns how many files were removed."""
        self._identity.confirm(self._store)
        epochs = {name for folder in (LOG, DATA) for name in self._store.names(folder) if name.isdigit()}
        removed = 0
        for epoch in sorted(epochs - self._swept):
            if gone(int(epoch)):
                removed += self._sweep(epoch)
                self._swept.add(epoch)
        return removed

    def _sweep(self, epoch: str) -> int:
        named = {file.name for manifest in self._sealed(epoch) for file in manifest.all_files}
        folder = f"{DATA}/{epoch}"
        unnamed = [name for name in self._store.names(folder) if f"{folder}/{name}" not in named]
        for name in unnamed:
            self._store.remove(f"{folder}/{name}")
        self._store.tidy(folder)
        return len(unnamed)

    def _sealed(self, epoch: str) -> Iterator[Manifest]:
        """The node's manifests, of which there will be no more."""
        log = f"{LOG}/{epoch}"
        seal = Manifest(feed=self._identity.feed, ranges={}, sealed=True).json()
        number = max(map(number_of, self._store.names(log)), default=0)
        while not self._store.create(f"{log}/{number_name(number)}", seal):
            if self._manifest(log, number).sealed:
                break
            number += 1
        return (self._manifest(log, earlier) for earlier in range(number))

    def _manifest(self, log: str, number: int) -> Manifest:
        name = f"{log}/{number_name(number)}"
        content = self._store.read(name)
        if content is None:
            raise SinkUnavailable(
                f"{self._store}/{name}: expected this manifest, since a later one is there; found none. Nothing was removed"
            )
        return Manifest.parse(content)
