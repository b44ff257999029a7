"""Each error of the client is one of Sluice's: what may go away by itself, and what somebody has to change, with what to change."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from changefeed.errors import RetryableError, SinkRefused, SinkUnavailable
from sink.messages.kafka.kafka_clients import REMEDIES, sink_error, translated

_CODES = {name: code for name in dir(KafkaError) if isinstance(code := getattr(KafkaError, name), int)}
_ACTED_ON = {
    *("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "SECURITY_DISABLED"),
    *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "DELEGATION_TOKEN_AUTHORIZATION_FAILED"),
    *("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"),
    *("INVALID_REPLICATION_FACTOR", "INVALID_PARTITIONS", "INVALID_CONFIG", "POLICY_VIOLATION", "TOPIC_EXCEPTION"),
    *("INVALID_REQUEST", "_INVALID_ARG", "UNSUPPORTED_COMPRESSION_TYPE"),
    *("UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"),
    *("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE", "INVALID_RECORD", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
}


def test_which_errors_somebody_has_to_act_on() -> None:
    assert {name for name, code in _CODES.items() if code in REMEDIES} == _ACTED_ON


@pytest.mark.parametrize("name", sorted(_CODES))
def test_each_error_of_the_client_is_translated(name: str) -> None:
    error = sink_error("kafka://b/shop: topic a", KafkaError(_CODES[name]))
    assert type(error) is (SinkRefused if name in _ACTED_ON else SinkUnavailable)
    assert isinstance(error, RetryableError)
    assert str(error).startswith("kafka://b/shop: topic a: ")


def test_errors_that_are_raised_are_translated_too() -> None:
    with pytest.raises(SinkUnavailable, match="asking"), translated("asking"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(SinkRefused, match="check the options"), translated("opening"):
        raise ValueError("no such property")
