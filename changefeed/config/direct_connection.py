"""`not_the_primary`: with `directConnection=true` the driver uses one member, also after an election; it has to be the primary. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def not_the_primary(hello: Mapping[str, Any]) -> str | None:
    """The problem and the remedy, if the member's reply to `hello` or `isMaster` says that it is not the primary."""
    if "setName" not in hello or hello.get("isWritablePrimary", hello.get("ismaster")):
        return None
    primary = f"the primary is {hello['primary']}" if "primary" in hello else "there is no primary now"
    return (
        f"its connection string says directConnection=true, so only {hello.get('me')} is used, a member of replica set {hello['setName']!r} "
        f"that is not the primary ({primary}): leave directConnection out, and Sluice finds the primary, also after an election"
    )
