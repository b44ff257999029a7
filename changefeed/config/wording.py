"""`Mistake`: the wording of a mistake in a configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_LONGEST = 60


class Mistake(ValueError):
    """What was found and what is allowed. The caller puts the path before it.

    It is a ValueError because pydantic collects these, so that all mistakes are reported at once.
    """


def shown(value: object) -> str:
    """A value as the user wrote it, shortened. A URI is never shown, in any field: it may contain a password."""
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
    """` (did you mean 'x'?)`, or an empty text if no allowed word is similar."""
    by_lower = {choice.lower(): str(choice) for choice in allowed}
    near = get_close_matches(str(word).lower(), by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
