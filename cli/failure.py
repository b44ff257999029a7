"""`Failure`: the error that ends a command of `sluice` with one of these exit codes.

1 failed         the server refused the request, or it did not take effect in time
2 usage          the command line or the given configuration is invalid
3 not found      there is no such changefeed, node or table
4 conflict       another user changed the same object, or it exists already
5 unreachable    the server, or its etcd, does not answer
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
    """`lines` are the text for the user; the first one names the failure."""

    def __init__(self, exit_code: ExitCode, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = exit_code
        self.lines = lines
