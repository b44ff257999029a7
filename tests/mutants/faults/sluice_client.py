"""Faults of the room `sluice_client`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_FILES = ("tests/component/sink/files/test_directory_of_files.py",)
_LEFTOVERS = ("tests/component/sink/files/test_leftovers.py",)

SLUICE_CLIENT = (
    Fault(
        "files of copies count as named by nobody",
        "        yield from self.files\n        for copy in self.copies:\n            yield from copy.files\n",
        "        yield from self.files\n",
        tests=_LEFTOVERS,
    ),
    Fault(
        "a manifest on which a watermark rests is not missed",
        "max([min(count, (group + 1) * GROUP), ",
        "max([self._next, ",
        tests=_FILES,
    ),
    Fault(
        "the log of a node that is gone is not missed",
        "< self._ends:",
        "< 0:",
        tests=_FILES,
    ),
    Fault(
        "a pos of an event is before all at its time",
        'return f"{time}{OF_EVENT}{position.token}" if position.token else f"{time}{BEFORE_ALL}"',
        'return f"{time}{OF_EVENT}{position.token}" if not position.token else f"{time}{BEFORE_ALL}"',
    ),
    Fault(
        "a sum that shows something behind the mark is left out",
        "if found.until >= low.ts:",
        "if found.until > low.ts and not found.ends:",
        tests=("tests/component/sink/files/test_long_history.py",),
    ),
    Fault(
        "a window contains the event at its end",
        "return self.start <= position < self.end",
        "return self.start <= position <= self.end",
        tests=("tests/unit/sluice_client/test_position.py",),
    ),
    Fault(
        "a place within a time sorts by its text alone",
        "return self.ts.seconds, self.ts.increment, self.token",
        "return self.ts.seconds, 0, self.token",
        tests=("tests/unit/sluice_client/test_position.py", "tests/unit/owner/ddl"),
    ),
    Fault(
        "a round that was saved is read though its watermark is not seen",
        "        self._directory.prove(round)\n",
        "",
        tests=_FILES,
    ),
    Fault(
        "a document of users that begins like a value is taken for it",
        "    read = _READERS.get(names)\n",
        "    read = _READERS.get(names[:1])\n",
        tests=("tests/unit/sluice_client/test_extended_json_parser.py",),
    ),
)
