"""`translated`, `sink_error`: errors of Kafka's client as errors of Sluice.

What may go away by itself is `SinkUnavailable`: no broker, no leader, too few replicas, a broker's disk. What somebody has to change is
`SinkRefused`, with what to change. Both are tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from changefeed.driver_text import in_one_line
from changefeed.errors import SinkRefused, SinkUnavailable
from credentials.redaction import redacted

_RIGHTS = "grant the rights that docs/kafka.md lists"
_USER = "check user, password and sasl"
_URI = "check the options of the sink's URI"
_TOPIC = (
    "it was deleted, with all messages in it: create it again with the same partitions, which starts it without them, or "
    "create another changefeed"
)
_KEYLESS = "it is compacted, and takes no message without a key: set its cleanup.policy to delete"
_VERSION = "use brokers of Kafka 2.4 or later"
_LARGE = "its max.message.bytes is lower than when the message was made: raise it, or wait until the next try, which follows it"

REMEDIES: Mapping[int, str] = {
    **dict.fromkeys(
        (
            *(KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED),
            *(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            *(KafkaError.SECURITY_DISABLED, KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ),
        _RIGHTS,
    ),
    **dict.fromkeys(
        (
            *(KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED),  # noqa: SLF001 - named so by the client
            *(KafkaError.UNSUPPORTED_SASL_MECHANISM, KafkaError.ILLEGAL_SASL_STATE),
        ),
        _USER,
    ),
    **dict.fromkeys(
        (
            *(KafkaError.INVALID_REPLICATION_FACTOR, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG),
            *(KafkaError.POLICY_VIOLATION, KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_REQUEST),
            *(KafkaError._INVALID_ARG, KafkaError.UNSUPPORTED_COMPRESSION_TYPE),  # noqa: SLF001 - as above
        ),
        _URI,
    ),
    **dict.fromkeys(
        (
            *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError.INCONSISTENT_TOPIC_ID),
            *(KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION),  # noqa: SLF001 - as above
        ),
        _TOPIC,
    ),
    KafkaError.INVALID_RECORD: _KEYLESS,
    **dict.fromkeys((KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE), _VERSION),  # noqa: SLF001 - as above
    **dict.fromkeys((KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE), _LARGE),
}
"""By code: what somebody has to do. All other errors may go away by themselves."""


def sink_error(what: str, error: KafkaError) -> SinkRefused | SinkUnavailable:
    said = f"{what}: {error.name()}: {redacted(in_one_line(error.str()))}"
    remedy = REMEDIES.get(error.code())
    return SinkRefused(f"{said}; {remedy}") if remedy is not None else SinkUnavailable(said)


@contextmanager
def translated(what: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        found = error.args[0]
        if not isinstance(found, KafkaError):
            raise SinkUnavailable(f"{what}: {redacted(in_one_line(str(error)))}") from error
        raise sink_error(what, found) from error
    except (ValueError, TypeError, RuntimeError) as error:  # of its options
        raise SinkRefused(f"{what}: {redacted(in_one_line(str(error)))}; {_URI}") from error
