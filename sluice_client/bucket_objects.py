"""`BucketObjects`: the files of a changefeed in a bucket of S3, under a prefix; `BucketServer`: how a client reaches it.

`bucket_errors` makes the client's errors errors of Sluice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, unquote_plus

import boto3
from botocore import exceptions as boto
from botocore.config import Config
from botocore.exceptions import ClientError

from sluice_client.feed_errors import ConfigurationError, SinkRefused, SinkUnavailable

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client


_CONNECT_SECONDS, _READ_SECONDS = 5, 30
ATTEMPTS = 4
_READS = 3


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BucketServer:
    """Without keys a process uses those that its surroundings give it."""

    region: str = ""
    endpoint: str = ""
    path_style: bool = False
    ca_file: str = ""
    key: str | None = None
    secret: str | None = None
    session_token: str | None = None

    @classmethod
    def of(cls, uri: str, followed: Callable[[str], str] = str) -> Self:
        """What a URI of a sink says, `s3://KEY:SECRET@BUCKET/PREFIX?..`. `followed`: replaces references by what they name, percent-encoded."""
        base, _, query = uri.removeprefix("s3://").partition("?")
        key, _, secret = followed(base.rpartition("@")[0]).partition(":")
        pairs = (part.partition("=") for part in followed(query).split("&"))
        options = {unquote(name): unquote(value) for name, _, value in pairs}
        endpoint = options.get("endpoint", "")
        return cls(
            region=options.get("region", ""),
            endpoint=endpoint,
            path_style=options.get("addressing", "path" if endpoint else "virtual") == "path",
            ca_file=options.get("tlsCAFile", ""),
            key=unquote_plus(key) or None,
            secret=unquote_plus(secret) or None,
            session_token=options.get("session_token") or None,
        )

    def opened(self, what: str, attempts: int = ATTEMPTS, shown: Callable[[str], str] | None = None) -> S3Client:
        """Bodies are signed, so that a damaged one is refused. Checksums that only Amazon knows are sent only where it wants them.

        `attempts` at each request. `what`, `shown`: as in `bucket_errors`.
        """
        if self.ca_file and not Path(self.ca_file).is_file():
            raise ConfigurationError([f"sink: tlsCAFile: {self.ca_file} is no file on this node; check its name"])
        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": attempts},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path" if self.path_style else "virtual", "payload_signing_enabled": True},
            tcp_keepalive=True,
            user_agent_extra="sluice",
        )
        shown = shown or one_line
        with bucket_errors(f"{what}: opening", shown):
            try:
                return boto3.session.Session().client(
                    "s3",
                    region_name=self.region or None,
                    endpoint_url=self.endpoint or None,
                    verify=self.ca_file or None,
                    aws_access_key_id=self.key,
                    aws_secret_access_key=self.secret,
                    aws_session_token=self.session_token,
                    config=config,
                )
            except ValueError as error:
                raise ConfigurationError([f"sink: {what}: {shown(str(error))}; check endpoint and region"]) from None


class BucketObjects:
    def __init__(
        self, bucket: str, prefix: str, client: Callable[[], S3Client], shown: Callable[[str], str] | None = None
    ) -> None:
        """`client` is called for each operation: its credentials may have changed. `shown`: as in `bucket_errors`."""
        self._bucket = bucket
        self._prefix = prefix
        self._client = client
        self._shown = shown or one_line

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def read(self, name: str) -> bytes | None:
        """A connection that breaks within a content is no failed request, which the client would repeat."""
        for left in reversed(range(_READS)):
            with self._errors(f"{self}: reading {name}"):
                try:
                    content = self._client().get_object(Bucket=self._bucket, Key=self._key(name))["Body"]
                except ClientError as error:
                    if not is_absent(error):
                        raise
                    return None
                try:
                    return content.read()
                except BROKEN_CONTENT:
                    if not left:
                        raise
        raise AssertionError

    def names(self, folder: str, after: str = "") -> list[str]:
        prefix = self._below(folder)
        with self._errors(f"{self}: listing {folder}"):
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._bucket, Prefix=prefix, Delimiter="/", StartAfter=f"{prefix}{after}")
            )
            found: set[str] = set()
            for page in pages:
                found.update(each["Key"] for each in page.get("Contents", ()))
                found.update(each["Prefix"] for each in page.get("CommonPrefixes", ()))
        names = (key.removeprefix(prefix).rstrip("/") for key in found)
        return sorted(name for name in names if name > after)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _below(self, folder: str) -> str:
        return "".join(f"{part}/" for part in (self._prefix, folder) if part)

    def _errors(self, what: str) -> AbstractContextManager[None]:
        return bucket_errors(what, self._shown)


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
_RIGHTS = "grant the rights that docs/how-to/buckets.md lists"
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


def one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def bucket_errors(what: str, shown: Callable[[str], str] = one_line) -> Iterator[None]:
    """What may go away by itself is `SinkUnavailable`, what somebody has to change `SinkRefused`. `shown`: what may be seen of a text of the client."""
    try:
        yield
    except boto.ClientError as error:
        raise _of_server(what, error, shown) from error
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound) as error:
        raise SinkRefused(
            f"{what}: {shown(str(error))}; write s3://KEY:SECRET@.. with references, or give this process credentials"
        ) from error
    except boto.NoRegionError as error:
        raise SinkRefused(f"{what}: no region is known; write region=.. into the URI") from error
    except boto.SSLError as error:
        raise SinkRefused(
            f"{what}: {shown(str(error))}; name the authority that signed its certificate with tlsCAFile"
        ) from error
    except (boto.BotoCoreError, boto.HTTPClientError, OSError) as error:
        raise SinkUnavailable(f"{what}: {shown(str(error))}") from error


def _of_server(what: str, error: boto.ClientError, shown: Callable[[str], str]) -> SinkRefused | SinkUnavailable:
    code, status = code_of(error), _status(error)
    text = shown(str(error.response.get("Error", {}).get("Message", "") or "no message"))
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
