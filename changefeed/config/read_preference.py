"""Options of a connection string that let another member than the primary be read, where they are refused. Pure.

At a target: what was written is judged by the primary's oplog, and what is compared or cleared must be as new as that. At a source that is read by
change streams: its stream, its copy and what is mended would be of different members. By the oplog they are all of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_OPTION = re.compile(r"[^&;]+")
_PRIMARY_ONLY = {"readpreference": "primary", "readpreferencetags": None, "maxstalenessseconds": None}


def refused_at_source(uri: str) -> str | None:
    """By change streams: what is wrong, and what to do."""
    return _told(uri, ", or read the oplog (capture: oplog), which obeys them")


def refused_at_target(uri: str) -> str | None:
    return _told(uri, "")


def _told(uri: str, otherwise: str) -> str | None:
    """The value of a reference `${...}` is not known yet: it is judged when it is."""
    found = ", ".join(_refused(uri))
    if not found:
        return None
    return (
        f"found {found}; Sluice reads the primary only, since a secondary may lack what the primary has: "
        f"leave readPreference, readPreferenceTags and maxStalenessSeconds out{otherwise}"
    )


def _refused(uri: str) -> Iterator[str]:
    options = _REFERENCE.sub("\0", uri).partition("?")[2]
    for option in _OPTION.findall(options):
        name, _, value = (unquote_plus(part) for part in option.partition("="))
        if name.lower() in _PRIMARY_ONLY and "\0" not in value and value.lower() != _PRIMARY_ONLY[name.lower()]:
            yield f"{name}={value}"
