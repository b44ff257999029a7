"""`EtcdConfig`: where etcd is, and how to get in. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Paths of PEM files; `cert` and `key` only where etcd asks for a client certificate."""

    ca: PurePath
    cert: PurePath | None = None
    key: PurePath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """`endpoints` are `host:port`. `timeout` bounds each call, failover included."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)
    tls: Tls | None = None
    user: str | None = None
    password_file: PurePath | None = None
    """Only its path: Spark sends this to executors, which have the file too. Read each time it is needed."""
    timeout: timedelta = timedelta(seconds=5)
