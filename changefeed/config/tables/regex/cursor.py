"""`Cursor`: a place in a regular expression that is read, and what sets and other elements have in common. Pure."""

from __future__ import annotations

import re

from changefeed.config.tables.regex.character_set import CATEGORIES, LAST

_CONTROLS = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_HEXADECIMAL = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})")
_CATEGORY = re.compile(r"\{(\^?)([A-Za-z]+)\}|([A-Z])")


class Unsupported(ValueError):
    """What was found, and what to write instead."""


class Cursor:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    @property
    def ended(self) -> bool:
        return self.at >= len(self.text)

    @property
    def char(self) -> str:
        """The next one; empty at the end."""
        return self.text[self.at : self.at + 1]

    def next(self) -> str:
        char = self.char
        if not char:
            raise self.refused("an end where something has to follow", "complete it, or write a backslash as \\\\")
        self.at += 1
        return char

    def take(self, text: str) -> bool:
        found = self.text.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def refused(self, what: str, instead: str) -> Unsupported:
        return Unsupported(f"{what} (before character {self.at + 1}); {instead}")

    def escaped(self, char: str) -> int:
        """The character that stands behind a backslash, or for which it stands."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x" and (found := self.match(_HEXADECIMAL)):
            code = int(found[1] or found[2], 16)
            if code > LAST or 0xD800 <= code <= 0xDFFF:
                raise self.refused(f"\\x{found[0]}, which is no character", "write another number")
            return code
        if char.isdecimal():
            raise self.refused(
                "a back-reference or an octal number", "write a character as \\x and two digits, and no reference"
            )
        if char.isascii() and char.isalnum():
            raise self.refused(f"\\{char}", "write the characters, or a set such as [a-z]")
        return ord(char)

    def category(self, escape: str, *, any_case: bool) -> str:
        r"""What follows `\p` or `\P`, for RE2."""
        found = self.match(_CATEGORY)
        name = (found[2] or found[3]) if found else ""
        if found is None or name not in CATEGORIES:
            raise self.refused(f"\\{escape} without one of Unicode's general categories", "write for example \\p{Lu}")
        if any_case and name in ("Lu", "Ll", "Lt"):
            raise self.refused(f"\\{escape}{{{name}}} with the option i", "write \\p{L}")
        return f"\\{'P' if (escape == 'P') != bool(found[1]) else 'p'}{{{name}}}"
