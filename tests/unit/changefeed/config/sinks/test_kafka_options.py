"""What a `kafka://` URI says, what is shown of it, and which are refused."""

from __future__ import annotations

import pytest

from changefeed.config.configuration import Configuration
from changefeed.config.options import Mistake
from changefeed.config.sinks.file_options import BucketPlace
from changefeed.config.sinks.kafka_options import (
    KAFKA_OPTIONS,
    Existing,
    KafkaSinkOptions,
    LargeRow,
    Sasl,
    TopicCompression,
)
from changefeed.config.sinks.message_options import FormatName, JsonMode, MessageEncoding, MessageOptions, SinkOption
from changefeed.config.sinks.topic_rules import PartitionBy
from changefeed.config.uri import ConnectionUri

_WHOLE = (
    "kafka://${env:USER}:${file:/run/secrets/kafka}@b1.example:9093,b2.example/shop?sasl=SCRAM-SHA-512&tls=true&tlsCAFile=/etc/ca.pem"
    "&topic={prefix}.{coll}&partitions=12&replication=3&topic.retention.ms=1000&compression=zstd&existing=append&partition_by=table"
    "&large=claim_check&claims=s3%3A%2F%2F${env:KEY}:${env:SECRET}%40bucket%2Fclaims%3Fregion%3Deu-1"
)


def test_defaults() -> None:
    options = KafkaSinkOptions.parse("kafka://b1,b2:9093/shop")
    assert (options.access.brokers, options.prefix) == ("b1:9092,b2:9093", "shop")
    assert (options.topic, options.partitions, options.replication) == ("{prefix}.{db}.{coll}", 6, None)
    assert options.messages == MessageOptions()
    assert (options.large, options.compression) == (LargeRow.FAIL, TopicCompression.LZ4)
    assert (options.existing, options.partition_by, options.settings) == (Existing.REFUSE, PartitionBy.KEY, ())
    assert (options.access.sasl, options.access.tls) == (None, False)


def test_options() -> None:
    options = KafkaSinkOptions.parse(_WHOLE)
    assert options.access.brokers == "b1.example:9093,b2.example:9092"
    assert (options.access.sasl, options.access.tls, options.access.ca_file) == (Sasl.SCRAM_512, True, "/etc/ca.pem")
    assert (options.topic, options.partitions, options.replication) == ("{prefix}.{coll}", 12, 3)
    assert options.settings == (("retention.ms", "1000"),)
    assert (options.large, options.compression) == (LargeRow.CLAIM_CHECK, TopicCompression.ZSTD)
    assert isinstance(options.claims, BucketPlace)
    assert (options.claims.bucket, options.claims.prefix) == ("bucket", "claims")
    assert options.claims.reference == "s3://${env:KEY}:${env:SECRET}@bucket/claims?region=eu-1"
    debezium = KafkaSinkOptions.parse("kafka://b/shop?format=debezium&json_mode=extended&tombstones=false")
    assert debezium.messages == MessageOptions(
        format=FormatName.DEBEZIUM, json_mode=JsonMode.EXTENDED, tombstones=False
    )
    bson = KafkaSinkOptions.parse("kafka://b/shop?encoding=bson")
    assert bson.messages.encoding is MessageEncoding.BSON


def test_nothing_of_the_credentials_is_shown() -> None:
    uri = ConnectionUri.parse(_WHOLE)
    shown = str(uri)
    assert shown.startswith("kafka://b1.example:9093,b2.example/shop?sasl=SCRAM-SHA-512")
    for secret in ("USER", "secrets", "KEY", "SECRET"):
        assert secret not in shown + repr(uri) + repr(KafkaSinkOptions.parse(_WHOLE))
    public = KafkaSinkOptions.parse(shown)
    assert uri.without_credentials() == ConnectionUri.parse(shown)
    assert (public.partitions, public.large) == (12, LargeRow.CLAIM_CHECK)


def test_what_is_needed_to_connect_has_no_claims() -> None:
    """Their credentials are references of their own, and may contain whatever ends an option."""
    access = KafkaSinkOptions.parse(_WHOLE).access
    assert "claims" not in access.reference
    expanded = ConnectionUri.parse(access.reference).expand({"USER": "u@x"}, lambda _: "p/&w", lambda _: None)
    assert expanded.startswith("kafka://u%40x:p%2F%26w@b1.example:9093,b2.example/shop?sasl=SCRAM-SHA-512")


def test_hosts_are_compared_with_those_of_the_source() -> None:
    assert ConnectionUri.parse("kafka://B1,b2:9093/shop").hosts == {"b1:9092", "b2:9093"}


_COMPACTED = "kafka://b1:9092/shop?topic.cleanup.policy=compact"


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("kafka:///shop", "found no host"),
        ("kafka://b1:9092", "found no prefix of topics"),
        ("kafka://b1:9092/a/b", "found no prefix of topics, or one with other signs"),
        ("kafka://b1:9092/shop?partition=3", "did you mean 'partitions'"),
        ("kafka://b1:9092/shop?partitions=0", "write 1 to 1000"),
        ("kafka://b1:9092/shop?replication=x", "write 1 to 9"),
        ("kafka://b1:9092/shop?topic={database}", "found topic={database}"),
        ("kafka://b1:9092/shop?topic.Retention=1", "as Kafka names it"),
        ("kafka://b1:9092/shop?large=claim_check", "write both"),
        ("kafka://b1:9092/shop?claims=file%3A%2F%2F%2Fx", "write both"),
        ("kafka://b1:9092/shop?large=claim_check&claims=%2Fsrv", "found claims="),
        ("kafka://b1:9092/shop?large=claim_check&claims=file%3A%2F%2Fsrv", "absolute path"),
        ("kafka://u:p@b1:9092/shop", "found a user and no sasl"),
        ("kafka://u:p@b1:9092/shop?sasl=OAUTHBEARER", "write both"),
        ("kafka://u:p@b1:9092/shop?sasl=PLAIN&tokenEndpoint=https%3A%2F%2Flogin%2Ftoken", "write both"),
        ("kafka://u:p@b1:9092/shop?sasl=OAUTHBEARER&tokenEndpoint=login", "is no address"),
        ("kafka://b1:9092/shop?sasl=scram-sha-512", "did you mean"),
        ("kafka://b1:9092/shop?tlsCAFile=/ca.pem", "no tls=true"),
        ("kafka://b1:9092/shop?format=debezium&encoding=bson", "are JSON"),
        ("kafka://b1:9092/shop?tombstones=false", "which only format=debezium has"),
        ("kafka://b1:9092/shop?topic.cleanup.policy=compact,delete", "have no key"),
        (f"{_COMPACTED}&format=debezium&topic={{prefix}}.all", "keys of debezium name no table"),
        (f"{_COMPACTED}&format=mongodb&topic={{prefix}}.{{db}}", "keys of mongodb name no table"),
        ("kafka://b1:9092/shop?topic.max.message.bytes=524287", "write 524288 or more"),
        ("kafka://b1:9092/shop?topic.max.message.bytes=1MiB", "write 524288 or more"),
        ("kafka://b1:9092/${env:PREFIX}", "elsewhere than in user, password"),
    ],
)
def test_mistakes(uri: str, problem: str) -> None:
    with pytest.raises(Mistake, match=problem.replace("{", r"\{").replace("}", r"\}")):
        ConnectionUri.parse(uri)


@pytest.mark.parametrize("option", KAFKA_OPTIONS, ids=lambda option: option.name)
def test_the_values_that_are_told_are_taken(option: SinkOption) -> None:
    more = {
        "json_mode": "&format=debezium",
        "tombstones": "&format=debezium",
        "schemas": "&format=debezium",
    }.get(option.name, "")
    if option.name in {
        "topic",
        "topics",
        "topic.NAME",
        "large",
        "claims",
        "tlsCAFile",
        "tlsCertificateKeyFile",
        "tokenEndpoint",
        "tokenScope",
    }:
        return  # their values are no list; the tests above have them
    for value in option.values.replace(" to ", ", ").split(", "):
        token = "&tokenEndpoint=https%3A%2F%2Flogin%2Ftoken&tokenScope=kafka" if value == "OAUTHBEARER" else ""
        KafkaSinkOptions.parse(f"kafka://b/shop?{option.name}={value}{more}{token}")
    if (
        option.default not in {"the brokers' own", "none"} and option.name != "tls"
    ):  # which is a part of what is compared
        assert KafkaSinkOptions.parse(f"kafka://b/shop?{option.name}={option.default}{more}") == KafkaSinkOptions.parse(
            f"kafka://b/shop?{more.removeprefix('&')}"
        )


def test_each_option_is_told() -> None:
    with pytest.raises(Mistake) as refused:
        KafkaSinkOptions.parse("kafka://b/shop?other=1")
    assert all(option.name in str(refused.value) for option in KAFKA_OPTIONS)


def test_what_means_nothing_for_topics_is_refused() -> None:
    problems = Configuration.parse(
        {"id": "a", "source": "mongodb://h", "sink": "kafka://b/shop"}
    ).senseless_for_messages()
    assert problems == []
