"""Options of a connection string that let another member than the primary be read: refused. Pure.

What was written is judged by the primary's oplog, and what is compared, cleared or repaired must be as new as that. Some commands go to the
primary whatever a connection string says, so one that names another preference would be obeyed for a part of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_OPTION = re.compile(r"[^&;]+")
_PRIMARY_ONLY = {"readpreference": "primary", "readpreferencetags": None, "maxstalenessseconds": None}


def refused_read_preference(uri: str) -> str | None:
    """What is wrong, and what to do. The value of a reference `${...}` is not known yet: it is judged when it is."""
    found = ", ".join(_refused(uri))
    if not found:
        return None
    return (
        f"found {found}; Sluice reads the primary only, since a secondary may lack what the primary has: "
        "leave readPreference, readPreferenceTags and maxStalenessSeconds out"
    )


def _refused(uri: str) -> Iterator[str]:
    options = _REFERENCE.sub("\0", uri).partition("?")[2]
    for option in _OPTION.findall(options):
        name, _, value = (unquote_plus(part) for part in option.partition("="))
        if name.lower() in _PRIMARY_ONLY and "\0" not in value and value.lower() != _PRIMARY_ONLY[name.lower()]:
            yield f"{name}={value}"
