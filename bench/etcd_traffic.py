"""`EtcdTraffic`: the writes to etcd below a cluster's root while a block runs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Self

from coordination.etcd.client import EtcdClient
from coordination.layout import Layout


class EtcdTraffic:
    def __init__(self, etcd: EtcdClient, layout: Layout) -> None:
        self._etcd, self._layout = etcd, layout
        self._ended = threading.Event()
        self.writes = self.bytes = self.largest = 0

    def __enter__(self) -> Self:
        revision = self._etcd.range(self._layout.nodes).revision
        self._watch = self._etcd.watch(self._layout.root, revision + 1)
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._watch.close()

    def _count(self) -> None:
        while not self._ended.is_set():
            update = self._watch.next(timedelta(milliseconds=200))
            if update is None:
                continue
            self.writes += 1
            for each in update.changes:
                size = len(each.now.value) if each.now else 0
                self.bytes += len(each.key) + size
                self.largest = max(self.largest, size)
