"""Runs SecantusDB as MongoDB would behave: the pinned version, with our corrections, in a process of its own.

SecantusDB is GPL-2.0 and for development only; nothing else imports it.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

PINNED = "0.7.0b3"
_ALWAYS = [
    "--host",
    "127.0.0.1",
    "--noop-heartbeat-seconds",
    "1",
    "--log-level",
    "WARNING",
    "--oplog-retention-seconds",
    "86400",
    "--enable-test-commands",
]


def refuse_other_than_pinned(installed: str) -> None:
    """The corrections reach into the program: with another version they could do anything."""
    if installed != PINNED:
        raise SystemExit(
            f"SecantusDB {installed} is installed, and the corrections are written for {PINNED} only: install that version, or "
            "go through devstack/corrections.py and its tests with the new one"
        )


def main(arguments: list[str]) -> int:
    refuse_other_than_pinned(version("secantusdb"))
    from secantus.cli import main as secantusd  # noqa: PLC0415 - not before its version is known

    from devstack import corrections  # noqa: PLC0415 - the same

    corrections.install()
    return int(secantusd([*_ALWAYS, *arguments]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
