"""Each error of the client is one of Sluice's: what may go away by itself, and what somebody has to change, with what to change."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.errors import RetryableError, SinkRefused, SinkUnavailable
from credentials.secrets import Expansion
from sink.messages.kafka.kafka_clients import REMEDIES, KafkaClients, sink_error, translated

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


@pytest.mark.parametrize("after", ["_ALL_BROKERS_DOWN", "_TRANSPORT", "_TIMED_OUT"])
def test_an_error_that_says_what_to_change_is_kept(after: str) -> None:
    refused, down = KafkaError(KafkaError._AUTHENTICATION), KafkaError(_CODES[after])
    clients = KafkaClients(
        KafkaSinkOptions.parse("kafka://127.0.0.1:1/shop"), Expansion("kafka://127.0.0.1:1/shop", ())
    )
    tell = clients.consumer_settings["error_cb"]
    for error in (down, refused, down):
        tell(error)
    assert clients.why() is refused
    clients.answered()
    tell(down)
    assert clients.why() is not refused


def test_what_the_client_writes_again_and_again_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    clients = KafkaClients(
        KafkaSinkOptions.parse("kafka://127.0.0.1:1/shop"), Expansion("kafka://127.0.0.1:1/shop", ())
    )
    log = clients.consumer_settings["logger"]
    for number in range(100):
        log.log(3, "connect to 127.0.0.1:1 failed (after %dms in state CONNECT)", number)
    assert capsys.readouterr().out.count("failed (after") <= 1


def test_errors_that_are_raised_are_translated_too() -> None:
    with pytest.raises(SinkUnavailable, match="asking"), translated("asking"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(SinkRefused, match="check the options"), translated("opening"):
        raise ValueError("no such property")
