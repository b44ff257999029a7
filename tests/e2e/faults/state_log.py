"""`StateLog`: each state that a changefeed was in, with its error."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Self

from changefeed.lifecycle import State
from changefeed.records.requests import ChangefeedId
from changefeed.records.status import ChangefeedStatus
from coordination.layout import Layout, decode
from coordination.mirror import Mirror

_LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Shown:
    state: State
    code: str = ""
    message: str = ""


class StateLog:
    """Watches etcd all the time, in its own thread."""

    def __init__(self, mirror: Mirror, layout: Layout, id: ChangefeedId) -> None:
        self._mirror = mirror
        self._key = layout.status(id)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="states", daemon=True)
        self._began = time.monotonic()
        self.shown: list[tuple[float, Shown]] = []
        """Each with the seconds since the log began, or was cleared."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def clear(self) -> None:
        self._began = time.monotonic()
        self.shown = []

    @property
    def now(self) -> Shown | None:
        found = self._mirror.view().get(self._key)
        if found is None:
            return None
        lifecycle = decode(ChangefeedStatus, found).lifecycle
        error = lifecycle.error
        return Shown(lifecycle.state, error.code, error.message) if error else Shown(lifecycle.state)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            now, shown = self.now, self.shown
            if now is not None and (not shown or shown[-1][1] != now):
                shown.append((time.monotonic() - self._began, now))
