"""`bucket_client`: the client of a bucket, opened once for a process, and again when its credentials have changed.

The client's own credentials (those of the environment, of a profile, of a machine or of a Kubernetes account) are renewed by the client
itself. A former client is not closed: another thread may be in the middle of a call, and its connections end with it.

`translated` makes its errors errors of Sluice. What may go away by itself is `SinkUnavailable`: no connection, no answer, a server that is busy or broken, credentials that have expired.
What somebody has to change is `SinkRefused`, with what to change. Both are tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from changefeed.config.sinks.file_options import BucketPlace
from changefeed.config.uri import ConnectionUri
from changefeed.driver_text import in_one_line
from credentials.redaction import redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import Stamp, expansion
from sink.messages.files.store import RETRIES
from sluice_client.bucket_objects import ATTEMPTS, BucketServer, bucket_errors

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


_Key: TypeAlias = tuple[BucketServer, Stamp, int]

_MOST = 64

_lock = threading.Lock()
_clients: dict[_Key, S3Client] = {}


def bucket_client(place: BucketPlace, files: SecretFiles | None = None, *, attempts: int = ATTEMPTS) -> S3Client:
    """`attempts` at each request. Buckets of one server share a client."""
    found = expansion(ConnectionUri(place.reference), files)
    server = BucketServer.of(found.uri)
    key = server, found.files, attempts
    with _lock:
        if key not in _clients:
            _clients[key] = _opened(server, str(place), attempts)
            for oldest in list(_clients)[:-_MOST]:
                del _clients[oldest]
        return _clients[key]


def _opened(server: BucketServer, place: str, attempts: int) -> S3Client:
    client = server.opened(place, attempts, shown)
    client.meta.events.register("after-call.s3", _count_retries)
    client.meta.events.register("after-call-error.s3", partial(_count_lost, attempts - 1))
    return client


def _count_retries(parsed: Mapping[str, Any], **_: object) -> None:
    RETRIES.add(parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def _count_lost(retries: int, **_: object) -> None:
    """No attempt of the call had an answer."""
    RETRIES.add(retries)


def shown(text: str) -> str:
    """What may be seen of a text of the client."""
    return redacted(in_one_line(text))


def translated(what: str) -> AbstractContextManager[None]:
    return bucket_errors(what, shown)
