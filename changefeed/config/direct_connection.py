"""A connection string with `directConnection=true` names one member, and no election leads to another: it has to be the primary. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def not_the_primary(hello: Mapping[str, Any]) -> str | None:
    """What is wrong with the one member that is asked, by its reply to `hello` or `isMaster`, and what to do."""
    if "setName" not in hello or hello.get("isWritablePrimary", hello.get("ismaster")):
        return None
    primary = f"the primary is {hello['primary']}" if "primary" in hello else "there is no primary now"
    return (
        f"its connection string says directConnection=true, so {hello.get('me')} alone is asked, a member of replica set {hello['setName']!r} that is not "
        f"the primary ({primary}): leave directConnection out, and Sluice finds the primary, after an election too"
    )
