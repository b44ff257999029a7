"""`bucket_client`: the client of a bucket, opened once for a process, and again when its credentials have changed.

The client's own credentials (those of the environment, of a profile, of a machine or of a Kubernetes account) are renewed by the client
itself. A former client is not closed: another thread may be in the middle of a call, and its connections end with it.

`translated` makes its errors errors of Sluice. What may go away by itself is `SinkUnavailable`: no connection, no answer, a server that is busy or broken, credentials that have expired.
What somebody has to change is `SinkRefused`, with what to change. Both are tried again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import boto3
from botocore import exceptions as boto
from botocore.config import Config

from changefeed.config.sinks.file_options import BucketAccess, BucketPlace, access_of
from changefeed.config.uri import ConnectionUri
from changefeed.driver_text import in_one_line
from changefeed.errors import ConfigurationError, SinkRefused, SinkUnavailable
from credentials.redaction import redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import Stamp, expansion
from sink.messages.files.store import RETRIES

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


BROKEN_CONTENT = (boto.IncompleteReadError, boto.ResponseStreamingError, boto.ReadTimeoutError, boto.ConnectionError)
_TAKEN = frozenset({"PreconditionFailed", "412"})
_ABSENT = frozenset({"NoSuchKey", "NoSuchUpload", "404", "NotFound"})
_BUSY = frozenset(
    {
        *(
            "SlowDown",
            "Throttling",
            "ThrottlingException",
            "TooManyRequests",
            "RequestLimitExceeded",
            "BandwidthLimitExceeded",
        ),
        *("RequestTimeout", "RequestTimeoutException", "InternalError", "ServiceUnavailable", "OperationAborted"),
        *("ConditionalRequestConflict", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"),
    }
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_REMEDIES: Mapping[str, str] = {
    "NoSuchBucket": "create the bucket, or name another one",
    "InvalidAccessKeyId": "give other keys",
    "SignatureDoesNotMatch": "check the secret key",
    "InvalidToken": "check session_token and keys",
    "RequestTimeTooSkewed": "set this machine's clock",
    "PermanentRedirect": "name the bucket's own region or endpoint",
    "AuthorizationHeaderMalformed": "name the bucket's own region",
    "IllegalLocationConstraintException": "name the bucket's own region",
    "NotImplemented": "use another store: this one lacks an operation that a sink needs",
}
_RIGHTS = "grant the rights that docs/object-stores.md lists"
_THROTTLED = 429
_SERVER_ERRORS = 500
_NO_RIGHTS = (401, 403)


def code_of(error: boto.ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def is_taken(error: boto.ClientError) -> bool:
    """The condition of a put was not met: the name exists."""
    return code_of(error) in _TAKEN or _status(error) == 412


def is_conflict(error: boto.ClientError) -> bool:
    """Another put of the name was under way; this one was not done."""
    return _status(error) == 409


def is_absent(error: boto.ClientError) -> bool:
    return code_of(error) in _ABSENT


@contextmanager
def translated(what: str) -> Iterator[None]:
    try:
        yield
    except boto.ClientError as error:
        raise _of_server(what, error) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound) as error:
        problem = in_one_line(str(error))
        raise SinkRefused(
            f"{what}: {problem}; write s3://KEY:SECRET@.. with references, or give the nodes credentials"
        ) from error
    except boto.NoRegionError as error:
        raise SinkRefused(f"{what}: no region is known; write region=.. into the URI") from error
    except boto.SSLError as error:
        raise SinkRefused(
            f"{what}: {_text(error)}; name the authority that signed its certificate with tlsCAFile"
        ) from error
    except (boto.BotoCoreError, boto.HTTPClientError, OSError) as error:
        raise SinkUnavailable(f"{what}: {_text(error)}") from error


def _of_server(what: str, error: boto.ClientError) -> SinkRefused | SinkUnavailable:
    code, status = code_of(error), _status(error)
    text = redacted(in_one_line(str(error.response.get("Error", {}).get("Message", "") or "no message")))
    said = f"{what}: {code} ({status}): {text}"
    if code in _EXPIRED:
        return SinkUnavailable(f"{said}; the credentials have expired: renew them")
    if code in _BUSY or status == _THROTTLED or (status >= _SERVER_ERRORS and code not in _REMEDIES):
        return SinkUnavailable(said)
    return SinkRefused(
        f"{said}; {_REMEDIES.get(code, _RIGHTS if status in _NO_RIGHTS else 'check the URI of the sink')}"
    )


def _status(error: boto.ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _text(error: Exception) -> str:
    return redacted(in_one_line(str(error)))
