"""How a command of `sluice` ends when it does not end well.

1 failed         the server refused, or what was asked for did not come true
2 usage          the command line, or the configuration given to it, is wrong in itself
3 not found      there is no such changefeed, node or table
4 conflict       somebody else changed the same thing, or it exists already
5 unreachable    the server, or the etcd behind it, does not answer
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5


class Failure(Exception):
    """`lines` are for the user; the first says what failed."""

    def __init__(self, exit_code: ExitCode, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = lines
