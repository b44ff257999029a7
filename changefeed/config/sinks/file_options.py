"""`FileSinkOptions`: what the URI of a sink of files says. Pure.

    file:///srv/orders                                                       JSON lines, compressed
    file:///srv/orders?format=bson&compression=none&commit_interval=10s&file_size=16MiB
    file:///srv/orders?format=parquet                                        rows in columns; DDL and watermarks stay JSON
    file:///srv/orders?format=parquet&layout=hive                            by table and day, for those who read folders
    s3://orders-archive/shop?region=eu-central-1&format=bson                 the same, in a bucket

`commit_interval`: how long a window of the tables that follow spans at least. Nothing is seen before its window is committed.
`file_size`: when a task begins its next file.

`DirectoryPlace` and `BucketPlace` say where the files are.

    s3://${env:KEY}:${file:/run/secrets/s3}@orders-archive/shop?endpoint=https://minio.example:9000&tlsCAFile=/etc/ca.pem

Only credentials may be references. Where the files are and what the options say is known to processes that expand nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Self, TypeAlias
from urllib.parse import unquote, urlsplit

from changefeed.config.options import Mistake, did_you_mean, shown
from changefeed.config.sinks.message_options import SinkOption, refuse_unknown

_SECONDS = re.compile(r"(\d{1,5})(s|m)")
_SIZE = re.compile(r"(\d{1,6})(KiB|MiB)")
_LONGEST = 3600
_LEAST_SIZE, _MOST_SIZE = 64 << 10, 4 << 30


class FileFormat(StrEnum):
    JSON = "json"
    BSON = "bson"
    PARQUET = "parquet"


class Compression(StrEnum):
    GZIP = "gzip"
    ZSTD = "zstd"
    NONE = "none"


class FileLayout(StrEnum):
    PLAIN = "plain"
    HIVE = "hive"


COMPRESSION_LEVEL = 1
"""Of both: higher ones cost more time than they save bytes in rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSinkOptions:
    place: StorePlace
    format: FileFormat = FileFormat.JSON
    compression: Compression = Compression.GZIP
    commit_seconds: int = 60
    file_bytes: int = 64 << 20
    layout: FileLayout = FileLayout.PLAIN

    @classmethod
    def parse(cls, uri: str) -> Self:
        in_bucket = uri.startswith("s3://")
        allowed = (*_READERS, *(option.name for option in BUCKET_OPTIONS if in_bucket))
        found: dict[str, Any] = {}
        others: dict[str, str] = {}
        for name, value in written_options(uri):
            refuse_unknown(name, allowed)
            if name not in _READERS:
                others[name] = value
                continue
            field, read = _READERS[name]
            found[field] = read(value)
        if in_bucket:
            refuse_half_access(uri)
            return cls(place=BucketPlace.parse(uri, others), **found)
        return cls(place=DirectoryPlace.parse(uri), **found)


def _seconds(value: str) -> int:
    match = _SECONDS.fullmatch(value)
    seconds = int(match[1]) * (60 if match[2] == "m" else 1) if match else 0
    if not 1 <= seconds <= _LONGEST:
        raise Mistake(f"found commit_interval={value}; write 1s to 60m, for example 60s")
    return seconds


def _bytes(value: str) -> int:
    match = _SIZE.fullmatch(value)
    size = int(match[1]) << (20 if match[2] == "MiB" else 10) if match else 0
    if not _LEAST_SIZE <= size <= _MOST_SIZE:
        raise Mistake(f"found file_size={value}; write 64KiB to 4096MiB, for example 64MiB")
    return size


OPTIONS = (
    SinkOption.one_of(
        "format",
        FileFormat,
        "json",
        "lines of JSON; documents one after another, exact for every value; or Parquet with one schema for all tables, which has both",
    ),
    SinkOption.one_of("compression", Compression, "gzip", "of the files with rows"),
    SinkOption(
        "commit_interval",
        "1s to 60m",
        "60s",
        "how often windows of tables that follow begin: nothing is seen before its window is committed",
        _seconds,
    ),
    SinkOption("file_size", "64KiB to 4096MiB", "64MiB", "when a task begins its next file", _bytes),
    SinkOption.one_of(
        "layout", FileLayout, "plain", "hive: files with rows by table and day, in db=/table=/dt= folders"
    ),
)
_FIELDS = ("format", "compression", "commit_seconds", "file_bytes", "layout")
_READERS = {option.name: (field, option.read) for option, field in zip(OPTIONS, _FIELDS, strict=True)}

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}")
_REGION = re.compile(r"[a-z0-9-]{2,40}")
_REFERENCE = re.compile(r"\$\{[^{}]*\}")
_LONGEST_PREFIX = 256
"""Names below it may have 768 bytes; a key has at most 1,024."""
SESSION_TOKEN = "session_token"  # noqa: S105 - the name of the option

BUCKET_OPTIONS = (
    SinkOption("region", "as eu-central-1", "the node's own", "where the bucket is"),
    SinkOption("endpoint", "http(s)://HOST:PORT", "Amazon S3", "of another server with the protocol of S3"),
    SinkOption(
        "addressing",
        "path, virtual",
        "path with an endpoint",
        "whether the bucket is in the path of an address or in its host",
    ),
    SinkOption("tlsCAFile", "a file of the node", "the system's", "who signed its certificate"),
    SinkOption(SESSION_TOKEN, "${env:..}, ${file:..}", "none", "beside temporary keys: KEY:SECRET@BUCKET"),
)


@dataclass(frozen=True, slots=True)
class DirectoryPlace:
    path: str

    @classmethod
    def parse(cls, uri: str) -> DirectoryPlace:
        path = unquote(uri.removeprefix("file://").partition("?")[0])
        if not path.startswith("/") or ".." in PurePosixPath(path).parts or path.rstrip("/") == "":
            raise Mistake(f"found {shown(uri)}; write the absolute path of a directory, for example file:///srv/orders")
        return cls(path.rstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlace:
    """`reference`: the URI as it is stored, which a process expands when it connects (`BucketServer`)."""

    bucket: str
    prefix: str = ""
    endpoint: str = ""
    reference: str = field(default="", repr=False)

    @classmethod
    def parse(cls, uri: str, options: Mapping[str, str]) -> BucketPlace:
        bucket, _, prefix = _without_user(uri).partition("/")
        prefix = unquote(prefix).strip("/")
        if not _BUCKET.fullmatch(bucket):
            raise Mistake("found no name of a bucket; write for example s3://bucket/prefix?region=eu-central-1")
        parts = prefix.split("/") if prefix else []
        if any(part in {"", ".", ".."} for part in parts) or len(prefix.encode()) > _LONGEST_PREFIX:
            raise Mistake(
                f"found a prefix with an empty part, . or .., or of more than {_LONGEST_PREFIX} bytes; write for example s3://bucket/shop"
            )
        region, endpoint = options.get("region", ""), options.get("endpoint", "")
        if region and not _REGION.fullmatch(region):
            raise Mistake("found a region with other signs than a-z, 0-9 and -; write for example eu-central-1")
        if endpoint and not _is_endpoint(endpoint):
            raise Mistake(
                "found an endpoint that is no address of a server; write for example endpoint=https://minio.example:9000"
            )
        addressing = options.get("addressing", "path" if endpoint else "virtual")
        if addressing not in {"path", "virtual"}:
            raise Mistake(
                f"found addressing={addressing}; allowed are path, virtual{did_you_mean(addressing, ('path', 'virtual'))}"
            )
        return cls(
            bucket=bucket,
            prefix=prefix,
            endpoint=endpoint,
            reference=uri,
        )

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


StorePlace: TypeAlias = DirectoryPlace | BucketPlace


def refuse_half_access(uri: str) -> None:
    """`uri` has no `/` and no second `@` before its bucket."""
    user, separator, _ = _REFERENCE.sub("x", uri).removeprefix("s3://").partition("?")[0].rpartition("@")
    key, _, secret = user.partition(":")
    if separator and not (key and secret):
        raise Mistake(
            "found one of two keys; write s3://KEY:SECRET@bucket/prefix, each as ${env:NAME} or ${file:/path}"
        )
    if not separator and SESSION_TOKEN in dict(written_options(uri)):
        raise Mistake("found session_token without keys; write s3://KEY:SECRET@bucket/prefix?session_token=..")


def written_options(uri: str) -> list[tuple[str, str]]:
    """As they are in the query; a plus is a plus, since a session token may have some."""
    query = uri.partition("?")[2]
    pairs = (part.partition("=") for part in query.split("&") if part)
    return [(unquote(name), unquote(value)) for name, _, value in pairs]


def _without_user(uri: str) -> str:
    return uri.removeprefix("s3://").partition("?")[0].rpartition("@")[2]


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and parts.path in {"", "/"}
            and not parts.query
        )
    except ValueError:
        return False
