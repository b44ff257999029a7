"""How a mistake in what a user wrote is put into words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_LONGEST = 60


class Mistake(ValueError):
    """What was found and what is allowed; who reads the file puts the path before it.

    A ValueError, since these are what pydantic collects, so that all mistakes are reported at once.
    """


def shown(value: object) -> str:
    """A value as the user wrote it, in short. A URI is never shown: it may hold a password, in whatever field it ended up."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    if isinstance(value, str) and "://" in value:
        return "a URI"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def did_you_mean(word: object, allowed: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing when no allowed word is near."""
    by_lower = {choice.lower(): str(choice) for choice in allowed}
    near = get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
