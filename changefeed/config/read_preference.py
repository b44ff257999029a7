"""`refused_at_source`, `refused_at_target`: connection options that allow reads from members other than the primary. Pure.

At a target, writes are checked against the primary's oplog, and what Sluice compares or clears must be as new as that. At a source
read by change streams, the stream, the copy and the repair would read different members. With the oplog capture all read one member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_OPTION = re.compile(r"[^&;]+")
_PRIMARY_ONLY = {"readpreference": "primary", "readpreferencetags": None, "maxstalenessseconds": None}


def refused_at_source(uri: str) -> str | None:
    """The problem and the remedy, at a source read by change streams."""
    return _refusal(uri, ", or read the oplog (capture: oplog), which obeys them")


def refused_at_target(uri: str) -> str | None:
    return _refusal(uri, "")


def _refusal(uri: str, otherwise: str) -> str | None:
    """A value that is a reference `${...}` is checked after its expansion."""
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
