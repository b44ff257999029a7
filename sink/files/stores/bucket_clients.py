"""`bucket_client`: the client of a bucket, opened once for a process, and again when its credentials have changed.

The client's own credentials (those of the environment, of a profile, of a machine or of a Kubernetes account) are renewed by the client
itself. A former client is not closed: another thread may be in the middle of a call, and its connections end with it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3
from botocore.config import Config

from changefeed.config.sinks.store_place import BucketAccess, BucketPlace, access_of
from changefeed.config.uri import ConnectionUri
from changefeed.errors import ConfigurationError
from credentials.redaction import redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import Stamp, expansion
from sink.files.stores.bucket_errors import translated
from sink.files.stores.retries import RETRIES

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_Key: TypeAlias = tuple[BucketPlace, BucketAccess, Stamp, int]

_CONNECT_SECONDS, _READ_SECONDS = 5, 30
_ATTEMPTS = 4

_MOST = 64

_lock = threading.Lock()
_clients: dict[_Key, S3Client] = {}


def bucket_client(place: BucketPlace, files: SecretFiles | None = None, *, attempts: int = _ATTEMPTS) -> S3Client:
    """`attempts` at each request. Buckets of one server share a client."""
    found = expansion(ConnectionUri(place.reference), files)
    server = replace(place, bucket="", prefix="", reference="")
    key = server, access_of(found.uri), found.files, attempts
    with _lock:
        if key not in _clients:
            _clients[key] = _opened(place, key[1], attempts)
            for oldest in list(_clients)[:-_MOST]:
                del _clients[oldest]
        return _clients[key]


def _opened(place: BucketPlace, access: BucketAccess, attempts: int) -> S3Client:
    """Bodies are signed, so that a damaged one is refused. Checksums that only Amazon knows are sent only where it wants them."""
    if place.ca_file and not Path(place.ca_file).is_file():
        raise ConfigurationError([f"sink: tlsCAFile: {place.ca_file} is no file on this node; check its name"])
    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": attempts},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if place.path_style else "virtual", "payload_signing_enabled": True},
        tcp_keepalive=True,
        user_agent_extra="sluice",
    )
    with translated(f"{place}: opening"):
        try:
            client = boto3.session.Session().client(
                "s3",
                region_name=place.region or None,
                endpoint_url=place.endpoint or None,
                verify=place.ca_file or None,
                aws_access_key_id=access.key,
                aws_secret_access_key=access.secret,
                aws_session_token=access.session_token,
                config=config,
            )
            client.meta.events.register("after-call.s3", _count_retries)
            client.meta.events.register("after-call-error.s3", partial(_count_lost, attempts - 1))
        except ValueError as error:
            raise ConfigurationError([f"sink: {place}: {redacted(str(error))}; check endpoint and region"]) from None
        return client


def _count_retries(parsed: Mapping[str, Any], **_: object) -> None:
    RETRIES.add(parsed.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def _count_lost(retries: int, **_: object) -> None:
    """No attempt of the call had an answer."""
    RETRIES.add(retries)
