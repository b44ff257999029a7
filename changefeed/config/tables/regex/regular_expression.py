r"""`RegularExpression`: a `$regex` that takes time in proportion to the text, with the result of MongoDB's own. Pure.

The server's engine (PCRE) and Python's `re` go back and try again: `^(a+)+$` against 44 a's and a b takes years. RE2 reads a text once. Where it
means something else than PCRE, the expression is rewritten; what it cannot express, and what releases of PCRE understand differently, is refused.

    $  without m        also true before a last newline: `\n?\z`, so nothing may follow it
    ^  with m           not true behind a last newline: something has to follow it
    \s, \w, [:alpha:]   ASCII's, with i too; `\s` has the vertical tab
    (a), (?<name>a)     match, and capture nothing

A text that is no UTF-8 matches nothing, as at the server. On a text that takes it too many steps the server gives up, and says that it does not
match. This engine does not give up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import re2

from changefeed.config.tables.regex.cursor import Unsupported
from changefeed.config.tables.regex.nodes import text_of
from changefeed.config.tables.regex.reader import read

OPTIONS = ("i", "m", "s", "x")


@dataclass(frozen=True, slots=True)
class RegularExpression:
    pattern: str
    options: str
    _program: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, pattern: str, options: str = "") -> RegularExpression:
        """Raises `Unsupported`."""
        settings = re2.Options()
        settings.log_errors, settings.never_capture = False, True
        text = text_of(read(pattern, frozenset(options)))
        try:
            return cls(pattern, options, re2.compile(text.encode(), settings))
        except re2.error as error:
            reason = error.args[0].decode() if error.args else "no reason given"
            raise Unsupported(
                f"{reason}; repeat at most 1000 times, also where one repetition is inside another"
            ) from None

    def __reduce__(self) -> tuple[object, ...]:
        return RegularExpression.parse, (self.pattern, self.options)

    def matches(self, text: str) -> bool:
        try:
            return self._program.search(text.encode()) is not None
        except UnicodeEncodeError:  # a text of the source that is no UTF-8
            return False
