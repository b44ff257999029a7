"""`SecretFiles`: which files a changefeed's `${file:...}` may name on a node. Pure.

Whoever may create a changefeed chooses the file and the server that its content is sent to. So a reference is followed only into
`/run/secrets`, or the directories that the node's configuration names instead, and never to a file that the node itself uses, such as
its key, nor to the token of its Kubernetes account.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_DIRECTORIES = ("/run/secrets",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFiles:
    directories: tuple[str, ...] = DEFAULT_DIRECTORIES
    own: tuple[str, ...] = ()
    """The secrets of the node itself."""
