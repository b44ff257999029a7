"""`Diagnosis`: what a supporter wants to know of this node, as files. No secret is in them, and no value of a variable."""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from types import FrameType

from prometheus_client import CollectorRegistry, generate_latest

from changefeed.errors import ConfigurationError
from credentials.logging import levels, newest_lines

_LONGEST = timedelta(minutes=5)
_EVERY_SECONDS = 0.01
_DEEPEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`configuration`: the node's, as YAML, as it may be shown."""

    version: str
    configuration: str
    registry: CollectorRegistry

    def files(self, profile: timedelta | None) -> Iterator[tuple[str, bytes]]:
        if profile is not None and not timedelta(0) < profile <= _LONGEST:
            raise ConfigurationError([f"profile: found {profile}; write up to {_LONGEST.total_seconds():.0f} seconds"])
        texts = {
            "version.txt": f"sluice {self.version}\npython {sys.version}\n",
            "configuration.yaml": self.configuration,
            "log-levels.json": json.dumps(levels(), indent=2),
            "newest.log": "".join(f"{line}\n" for line in newest_lines()),
            "threads.txt": "\n".join(_threads()),
        }
        yield from ((name, text.encode()) for name, text in texts.items())
        yield "metrics.txt", generate_latest(self.registry)
        if profile is not None:
            yield "profile.txt", "".join(f"{stack} {count}\n" for stack, count in _profile(profile)).encode()


def _threads() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for id, frame in sys._current_frames().items():  # noqa: SLF001 - Python's own way to ask for it
        yield f"{names.get(id, id)}\n{''.join(traceback.format_stack(frame))}"


def _profile(length: timedelta) -> list[tuple[str, int]]:
    """Stacks as flame graphs take them, with how often a thread was seen there."""
    seen, until, own = Counter[str](), time.monotonic() + length.total_seconds(), threading.get_ident()
    while time.monotonic() < until:
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for id, frame in sys._current_frames().items():  # noqa: SLF001 - as above
            if id != own:
                seen[";".join([str(names.get(id, id)), *reversed(list(islice(_calls(frame), _DEEPEST)))])] += 1
        time.sleep(_EVERY_SECONDS)
    return seen.most_common()


def _calls(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}"
        frame = frame.f_back
