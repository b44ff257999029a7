"""`FileCommitter`: makes visible what tasks wrote, by one manifest.

    schema versions   put-create, before the manifest that has their first rows
    manifest          log/<node epoch>/<number>.json, put-create
    confirmation      the store is this changefeed's, and not the empty directory that is there without its file system

A node's epoch is its own, so nodes never compete for a name. A number that is taken was an earlier try of this node, and the next one is
tried; or the node counts as gone (`leftovers.py`), and may not commit any more. A crash between two steps leaves versions that nobody
needs, or a manifest whose window is run again: ranges then overlap.
"""

from __future__ import annotations

import threading

from changefeed.errors import SinkRefused, SinkUnavailable
from changefeed.position import Position
from changefeed.table import TableId
from sink.files.identity import FeedIdentity
from sink.files.manifest import LOG, Manifest, number_name, number_of, schema_name
from sink.files.stores.store import Store
from sink.messages.message import schema_message
from sink.receipt import Commit


class FileCommitter:
    def __init__(self, identity: FeedIdentity, store: Store, epoch: int) -> None:
        """`epoch`: the node's."""
        self._identity = identity
        self._store = store
        self._log = f"{LOG}/{epoch}"
        self._lock = threading.Lock()
        self._number: int | None = None
        self._described: set[tuple[TableId, Position]] = set()

    def commit(self, commit: Commit) -> None:
        feed = self._identity.feed
        manifest = Manifest(feed=feed, ranges=commit.ranges, files=commit.files, copies=commit.copies).json()
        with self._lock:
            if self._number is None:
                self._number = max((number_of(name) for name in self._store.names(self._log)), default=0)
            for schema, name in commit.tables:
                version = schema.id, schema.valid_from
                if version not in self._described:
                    described = schema_name(schema.id, schema.valid_from)
                    self._store.create(described, schema_message(feed, schema, name).json())
                    self._described.add(version)
            while not self._store.create(f"{self._log}/{number_name(self._number)}", manifest):
                self._refuse_sealed(self._number)
                self._number += 1
            self._number += 1
            self._confirm()

    def _confirm(self) -> None:
        try:
            self._identity.confirm(self._store)
        except SinkUnavailable:
            self._number = None
            self._described.clear()
            raise

    def _refuse_sealed(self, number: int) -> None:
        name = f"{self._log}/{number_name(number)}"
        content = self._store.read(name)
        if content is not None and Manifest.parse(content).sealed:
            raise SinkRefused(
                f"{self._store}/{name}: nothing more is committed, because the node of this epoch counts as gone; "
                f"restart this node if it is not"
            )
