"""`reach`: failpoints, the places between two critical steps at which a test kills or holds a process.

    SLUICE_FAILPOINTS="ddl_applied/drop=kill window_begins=hold:/tmp/holds"

`reach("ddl_applied", "drop", "shop")` in the code then kills the process like `kill -9`. A hold can be set and removed while the process
runs: while `/tmp/holds/window_begins/shop` exists, a process that reaches the point with the subject `shop` adds a line to
`/tmp/holds/window_begins/shop.reached` and waits. Without the variable `reach` does nothing. This is decided when the module is imported.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from changefeed.errors import ConfigurationError

VARIABLE = "SLUICE_FAILPOINTS"
_LOOK_AGAIN_SECONDS = 0.02

Action = Callable[[Sequence[str]], None]


def parse(text: str) -> dict[str, Action]:
    """The action of each named point. It takes the subjects of the call that reaches the point."""
    actions: dict[str, Action] = {}
    for entry in text.split():
        point, _, wanted = entry.partition("=")
        verb, _, file = wanted.partition(":")
        if verb == "kill" and not file:
            actions[point] = _kill
        elif verb == "hold" and file:
            actions[point] = _hold_while(Path(file) / point)
        else:
            raise ConfigurationError(
                [f"{VARIABLE}: found {entry!r}; write point=kill or point=hold:/path/of/a/directory"]
            )
    return actions


def _kill(_: Sequence[str]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hold_while(directory: Path) -> Action:
    def hold(subjects: Sequence[str]) -> None:
        for file in (directory / subject for subject in subjects):
            if file.exists():
                with Path(f"{file}.reached").open("a", encoding="ascii") as reached:
                    reached.write(f"{os.getpid()}\n")
                while file.exists():
                    time.sleep(_LOOK_AGAIN_SECONDS)

    return hold


_ACTIONS = parse(os.environ.get(VARIABLE, ""))

if _ACTIONS:

    def reach(point: str, *subjects: str) -> None:
        """`subjects` narrow the point down: the kind of a DDL, its database."""
        for name in (point, *(f"{point}/{subject}" for subject in subjects)):
            if name in _ACTIONS:
                _ACTIONS[name](subjects)

else:

    def reach(point: str, *subjects: str) -> None:
        """Do nothing: no failpoints are set."""
