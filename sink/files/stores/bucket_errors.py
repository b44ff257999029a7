"""`translated`: errors of the S3 client as errors of Sluice.

What may go away by itself is `SinkUnavailable`: no connection, no answer, a server that is busy or broken, credentials that have expired.
What somebody has to change is `SinkRefused`, with what to change. Both are tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from botocore import exceptions as boto

from changefeed.driver_text import in_one_line
from changefeed.errors import SinkRefused, SinkUnavailable
from credentials.redaction import redacted

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
