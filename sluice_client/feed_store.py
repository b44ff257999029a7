"""`FeedStore`: what a reader needs of the place where the files of a changefeed are; `Folder`: a directory; `open_feed`: what a URI names.

    file:///srv/orders
    s3://orders-archive/shop?region=eu-central-1
    s3://${env:KEY}:${file:/run/secrets/s3}@orders-archive/shop?endpoint=https://minio.example:9000&tlsCAFile=/etc/ca.pem

The URI may be that of the sink: options that say how files are written mean nothing to a reader. References in keys are followed in each process
that connects.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, unquote

from sluice_client.feed_errors import ConfigurationError, SinkRefused, SinkUnavailable, SluiceError

_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
_REFERENCE = re.compile(r"\$\{(env|file):([^{}]+)\}")


class FeedStore(Protocol):
    """As text, it is what users call it."""

    def read(self, name: str) -> bytes | None:
        """None if there is no such file."""

    def names(self, folder: str, after: str = "") -> list[str]:
        """What is in the folder under names behind `after`, sorted. None of files that are being written."""


class Folder:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        with self._errors(f"reading {name}"):
            try:
                return (self.path / name).read_bytes()
            except FileNotFoundError:
                return None

    def names(self, folder: str, after: str = "") -> list[str]:
        with self._errors(f"listing {folder}"):
            try:
                found = [entry.name for entry in os.scandir(self.path / folder) if not entry.name.startswith(".")]
            except FileNotFoundError:
                return []
        return sorted(name for name in found if name > after)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except SluiceError:
            raise
        except OSError as error:
            kind = SinkRefused if error.errno in _REFUSED else SinkUnavailable
            raise kind(f"{self.path}: {what}: {error.strerror or error}") from error


def open_feed(uri: str) -> FeedStore:
    """Reaches nothing yet."""
    scheme, separator, rest = uri.partition("?")[0].partition("://")
    path = unquote(rest)
    if scheme == "file" and path.startswith("/"):
        return Folder(path.rstrip("/"))
    if not separator and uri.startswith("/"):
        return Folder(uri)
    if scheme == "s3":
        return _bucket(uri)
    raise ConfigurationError(
        [f"path: found {uri!r}; write where the sink of the changefeed is: file:///srv/orders or s3://bucket/prefix"]
    )


def _bucket(uri: str) -> FeedStore:
    try:
        from sluice_client.bucket_objects import BucketObjects, BucketServer  # noqa: PLC0415 - boto3 takes time to load, and may not be there
    except ModuleNotFoundError as error:
        raise ConfigurationError([f"path: a bucket needs boto3: pip install 'sluice-client[s3]' ({error})"]) from None
    place = uri.removeprefix("s3://").partition("?")[0].rpartition("@")[2]
    bucket, _, prefix = place.partition("/")
    client = BucketServer.of(uri, _followed).opened(f"s3://{place}")
    return BucketObjects(bucket, unquote(prefix).strip("/"), lambda: client)


def _followed(text: str) -> str:
    """With what its references name, percent-encoded."""

    def value(match: re.Match[str]) -> str:
        kind, name = match.groups()
        try:
            found = os.environ[name] if kind == "env" else Path(name).read_text(encoding="utf-8").strip()
        except (KeyError, OSError) as error:
            raise ConfigurationError(
                [f"path: ${{{kind}:{name}}} is not there in this process ({error}); set it on driver and executors"]
            ) from None
        return quote(found, safe="")

    return _REFERENCE.sub(value, text)
