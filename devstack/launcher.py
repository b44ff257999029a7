"""Runs SecantusDB as MongoDB would behave: the pinned version, with our corrections, in a process of its own.

SecantusDB is GPL-2.0 and for development only; nothing else imports it.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

PINNED = "0.7.0b3"
_ALWAYS = [
    *("--host", "127.0.0.1", "--noop-heartbeat-seconds", "1", "--log-level", "WARNING"),
    # the default keeps 100,000 entries; a test that loads more would lose its own history
    *("--oplog-max-entries", "10000000", "--oplog-retention-seconds", "86400"),
]


def main(arguments: list[str]) -> int:
    installed = version("secantusdb")
    if installed != PINNED:
        raise SystemExit(
            f"SecantusDB {installed} is installed, and the corrections are written for {PINNED} only: install that version, or "
            "go through devstack/corrections.py and its tests with the new one"
        )
    from secantus.cli import main as secantusd  # noqa: PLC0415 - not before its version is known

    from devstack import corrections  # noqa: PLC0415 - the same

    corrections.install()
    return int(secantusd([*_ALWAYS, *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
