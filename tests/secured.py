"""`secured_pair`: a source and a target whose clients have to authenticate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from devstack.mongodb.replica_set import ReplicaSet
from devstack.mongodb.security import Security, TlsFiles
from devstack.process import side_by_side


@contextmanager
def secured_pair(directory: Path, tls: TlsFiles | None = None) -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    """One member each, as three authenticate users in the same way (`test_secured_replica_set.py`)."""
    source, target = (
        ReplicaSet(name, directory, directory, size=1, security=Security(directory / f"{name}-security", tls))
        for name in ("source", "target")
    )
    side_by_side([source.start, target.start])
    try:
        yield source, target
    finally:
        side_by_side([source.stop, target.stop])
