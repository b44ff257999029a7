"""Failpoints: places where a test lets a process die or wait, between two lines where an accident would hurt most.

    SLUICE_FAILPOINTS="ddl_applied/drop=kill ddl_released=pause:/tmp/go"

`reach("ddl_applied", "drop")` in the code then kills the process as `kill -9` would. A pause makes the file `/tmp/go.reached` and waits until
`/tmp/go` is there. Without the variable `reach` is an empty function: which of the two it is, is decided when this module is imported.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from changefeed.errors import ConfigurationError

VARIABLE = "SLUICE_FAILPOINTS"
_LOOK_AGAIN_SECONDS = 0.02

Action = Callable[[], None]


def parse(text: str) -> dict[str, Action]:
    """What is done at each point named."""
    actions: dict[str, Action] = {}
    for entry in text.split():
        point, _, wanted = entry.partition("=")
        verb, _, file = wanted.partition(":")
        if verb == "kill" and not file:
            actions[point] = _kill
        elif verb == "pause" and file:
            actions[point] = _pause_until(Path(file))
        else:
            raise ConfigurationError([f"{VARIABLE}: found {entry!r}; write point=kill or point=pause:/path/of/a/file"])
    return actions


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pause_until(file: Path) -> Action:
    def pause() -> None:
        Path(f"{file}.reached").touch()
        while not file.exists():
            time.sleep(_LOOK_AGAIN_SECONDS)

    return pause


_ACTIONS = parse(os.environ.get(VARIABLE, ""))

if _ACTIONS:

    def reach(point: str, subject: str = "") -> None:
        """`subject` narrows the point down: the kind of a DDL."""
        for name in (point, f"{point}/{subject}"):
            if name in _ACTIONS:
                _ACTIONS[name]()

else:

    def reach(point: str, subject: str = "") -> None:
        """Nothing: no failpoints were asked for."""
