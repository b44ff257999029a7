"""`KafkaSinkOptions`: what the URI of a sink in Kafka says. Pure.

    kafka://b1.example:9092,b2.example:9092/shop                      topics shop.<database>.<collection>, of 6 partitions
    kafka://b1:9092/shop?format=debezium&partitions=12&replication=3&topic.retention.ms=604800000
    kafka://${env:USER}:${file:/run/secrets/kafka}@b1:9093/shop?sasl=SCRAM-SHA-512&tls=true&tlsCAFile=/etc/ca.pem
    kafka://${env:ID}:${file:/run/secrets/kafka}@b1:9093/shop?sasl=OAUTHBEARER&tokenEndpoint=https%3A%2F%2Flogin.example%2Ftoken&tls=true
    kafka://b1:9092/shop?large=claim_check&claims=s3%3A%2F%2Fbucket%2Fclaims%3Fregion%3Deu-central-1

The number of partitions belongs to the changefeed for life: the place of a key is computed from it, and a topic with another number
is an error. So the default never changes. Only credentials may be references, in the URI and in that of `claims`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from changefeed.config.options import Mistake, shown
from changefeed.config.sinks.file_options import FileSinkOptions, StorePlace, written_options
from changefeed.config.sinks.message_options import (
    FormatName,
    JsonMode,
    MessageEncoding,
    MessageOptions,
    SinkOption,
    refuse_unknown,
)
from changefeed.config.sinks.topic_rules import PartitionBy, TopicRule, parse_topic
from changefeed.table import TableName

DEFAULT_PORT = ":9092"
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SETTING, _RULES = "topic.", "topics"
_COMPACT = "compact"
_SETTING_NAME = re.compile(r"[a-z][a-z.]{2,60}")
_NUMBER = re.compile(r"\d{1,4}")
_MOST_PARTITIONS, _MOST_REPLICAS = 1000, 9
CLAIMS = "claims"
LEAST_MESSAGE_BYTES = 512 << 10
"""The most that one request has for one partition. A topic has to take that much."""
CLEANUP, MESSAGE_BYTES = "cleanup.policy", "max.message.bytes"
_ACCESS = ("sasl", "tokenEndpoint", "tokenScope", "tls", "tlsCAFile", "tlsCertificateKeyFile")


class LargeRow(StrEnum):
    FAIL = "fail"
    KEY_ONLY = "key_only"
    CLAIM_CHECK = "claim_check"


class TopicCompression(StrEnum):
    LZ4 = "lz4"
    ZSTD = "zstd"
    GZIP = "gzip"
    SNAPPY = "snappy"
    NONE = "none"


class Existing(StrEnum):
    REFUSE = "refuse"
    APPEND = "append"


class Sasl(StrEnum):
    PLAIN = "PLAIN"
    SCRAM_256 = "SCRAM-SHA-256"
    SCRAM_512 = "SCRAM-SHA-512"
    OAUTH = "OAUTHBEARER"
    """User and password are those of a client at `token_endpoint`, which gives it tokens (OpenID Connect, `client_credentials`)."""


class _Flag(StrEnum):
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """How a connection is made. `reference`: a URI with no more than this, with the user, which a process expands when it connects."""

    brokers: str
    """As `bootstrap.servers`."""
    sasl: Sasl | None = None
    token_endpoint: str = ""
    token_scope: str = ""
    tls: bool = False
    ca_file: str = ""
    certificate_key_file: str = ""
    reference: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSinkOptions:
    access: KafkaAccess
    prefix: str
    messages: MessageOptions
    topic: str = "{prefix}.{db}.{coll}"
    partition_by: PartitionBy = PartitionBy.KEY
    topics: tuple[TopicRule, ...] = ()
    """Of tables whose rows go elsewhere."""
    partitions: int = 6
    replication: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    """Of the topics of rows, when they are created."""
    large: LargeRow = LargeRow.FAIL
    claims: StorePlace | None = None
    compression: TopicCompression = TopicCompression.LZ4
    existing: Existing = Existing.REFUSE

    @classmethod
    def parse(cls, uri: str) -> KafkaSinkOptions:
        base = uri.removeprefix("kafka://").partition("?")[0]
        user, has_user, place = base.rpartition("@")
        hosts, _, prefix = place.partition("/")
        if not _PREFIX.fullmatch(prefix) or prefix in {".", ".."}:
            raise Mistake(
                "found no prefix of topics, or one with other signs than letters, digits, '.', '_' and '-', or of more than 100; write for "
                "example kafka://b1:9092,b2:9092/shop"
            )
        found: dict[str, Any] = {}
        settings: list[tuple[str, str]] = []
        for name, value in written_options(uri):
            if name.startswith(_SETTING):
                settings.append((_setting(name.removeprefix(_SETTING)), value))
                continue
            refuse_unknown(name, tuple(_OPTIONS))
            read = _OPTIONS[name].read(value)
            found[name] = (*found.get(name, ()), read) if name == _RULES else read
        _refuse_settings(dict(settings), found)
        access = _access(uri, hosts, bool(has_user and user), found)
        return cls(
            access=access, prefix=prefix, messages=_messages(found), settings=tuple(sorted(settings)), **_checked(found)
        )

    def __str__(self) -> str:
        return f"kafka://{self.access.brokers}/{self.prefix}"

    @property
    def own_topics(self) -> tuple[str, str, str]:
        """Those that have no rows: whose topics these are, DDL, watermarks."""
        ddl = self.prefix if self.messages.format is FormatName.DEBEZIUM else f"{self.prefix}.ddl"
        return f"{self.prefix}.feed", ddl, f"{self.prefix}.watermark"

    @property
    def rules(self) -> tuple[TopicRule, ...]:
        """The last one is that of all other tables."""
        return (*self.topics, TopicRule(self.topic, self.partition_by))

    def rule_of(self, table: TableName) -> TopicRule:
        return next(rule for rule in self.rules if rule.tables.matches(table))

    @property
    def compacts(self) -> bool:
        """Whether topics keep the last message of each key alone."""
        return _COMPACT in dict(self.settings).get(CLEANUP, "")


def _refuse_settings(settings: Mapping[str, str], found: Mapping[str, Any]) -> None:
    if _COMPACT in settings.get(CLEANUP, ""):
        if found.get("format", FormatName.SLUICE) is FormatName.SLUICE:
            raise Mistake(
                "found topic.cleanup.policy with compact; DDL and watermarks of format=sluice have no key, and brokers refuse them in a compacted "
                "topic: write topic.cleanup.policy=delete, or another format"
            )
        rules = (*found.get(_RULES, ()), TopicRule(found.get("topic", "{db}{coll}"), PartitionBy.KEY))
        if shared := [rule.topic for rule in rules if not rule.of_one_table]:
            raise Mistake(
                f"found topic.cleanup.policy with compact and the topic {shared[0]}; keys of {found['format']} name no table, so rows of other "
                "tables with the same _id would be removed: write a topic with {db} and {coll}, or topic.cleanup.policy=delete"
            )
    written = settings.get(MESSAGE_BYTES, "")
    if written and not (written.isdigit() and int(written) >= LEAST_MESSAGE_BYTES):
        raise Mistake(
            f"found topic.max.message.bytes={shown(written)}; a batch of messages has up to {LEAST_MESSAGE_BYTES} bytes, and larger documents "
            f"are messages of their own: write {LEAST_MESSAGE_BYTES} or more (docs/how-to/kafka.md says how large messages become)"
        )


def _setting(name: str) -> str:
    if not _SETTING_NAME.fullmatch(name):
        raise Mistake(
            f"found the topic setting {shown(name)}; write it as Kafka names it, topic.retention.ms=604800000"
        )
    return name


def _access(uri: str, hosts: str, has_user: bool, found: dict[str, Any]) -> KafkaAccess:
    access = KafkaAccess(
        brokers=",".join(host if re.search(r":\d+$", host) else host + DEFAULT_PORT for host in hosts.split(",")),
        sasl=found.pop("sasl", None),
        token_endpoint=found.pop("tokenEndpoint", ""),
        token_scope=found.pop("tokenScope", ""),
        tls=found.pop("tls", _Flag.FALSE) is _Flag.TRUE,
        ca_file=found.pop("tlsCAFile", ""),
        certificate_key_file=found.pop("tlsCertificateKeyFile", ""),
        reference=_reference(uri),
    )
    if has_user and access.sasl is None:
        raise Mistake(f"found a user and no sasl; add sasl={', '.join(Sasl)}, or leave the user out")
    if (access.sasl is Sasl.OAUTH) != bool(access.token_endpoint) or (access.token_scope and not access.token_endpoint):
        raise Mistake(
            "found one of sasl=OAUTHBEARER and tokenEndpoint; write both: the address that gives tokens, percent-encoded "
            "(tokenEndpoint=https%3A%2F%2Flogin.example%2Ftoken), and ID:SECRET@ of a client there before the brokers"
        )
    if (access.ca_file or access.certificate_key_file) and not access.tls:
        raise Mistake("found files of TLS and no tls=true; add it, or leave the files out")
    return access


def _reference(uri: str) -> str:
    """The part of the URI that a connection needs. `claims` has references of its own."""
    base, _, query = uri.partition("?")
    options = "&".join(part for part in query.split("&") if part.partition("=")[0] in _ACCESS)
    return f"{base}?{options}"


def _messages(found: dict[str, Any]) -> MessageOptions:
    format = found.pop("format", FormatName.SLUICE)
    given = {name for name in ("encoding", "json_mode", "tombstones", "schemas") if name in found}
    options = MessageOptions(
        format=format,
        encoding=found.pop("encoding", MessageEncoding.JSON),
        json_mode=found.pop("json_mode", JsonMode.LEGACY),
        tombstones=found.pop("tombstones", _Flag.TRUE) is _Flag.TRUE,
        schemas=found.pop("schemas", _Flag.FALSE) is _Flag.TRUE,
    )
    if format is FormatName.DEBEZIUM and options.encoding is not MessageEncoding.JSON:
        raise Mistake("found format=debezium&encoding=bson; messages of Debezium are JSON, leave encoding out")
    if format is not FormatName.DEBEZIUM and (senseless := sorted(given - {"encoding"})):
        raise Mistake(f"found {', '.join(senseless)}, which only format=debezium has; leave it out")
    return options


def _checked(found: dict[str, Any]) -> dict[str, Any]:
    claims = found.get(CLAIMS) is not None
    if claims != (found.get("large") is LargeRow.CLAIM_CHECK):
        raise Mistake(
            "found one of large=claim_check and claims; write both, claims=URI with a directory or bucket, percent-encoded: "
            "large=claim_check&claims=file%3A%2F%2F%2Fsrv%2Fclaims"
        )
    return found


def _number(name: str, most: int, default: str, about: str) -> SinkOption:
    def read(value: str) -> int:
        number = int(value) if _NUMBER.fullmatch(value) else 0
        if not 1 <= number <= most:
            raise Mistake(f"found {name}={value}; write 1 to {most}")
        return number

    return SinkOption(name, f"1 to {most}", default, about, read)


def _claims(value: str) -> StorePlace:
    if not value.startswith(("file://", "s3://")):
        raise Mistake(f"found claims={shown(value)}; write file:///DIRECTORY or s3://BUCKET/PREFIX, percent-encoded")
    return FileSinkOptions.parse(value).place


def _endpoint(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s@?#]+", value):
        raise Mistake("found a tokenEndpoint that is no address; write https://HOST/PATH, percent-encoded")
    return value


KAFKA_OPTIONS = (
    SinkOption.one_of(
        "format",
        FormatName,
        "sluice",
        "sluice: rows, DDL and watermarks in one provable order; or as the connectors of Debezium or MongoDB write them",
    ),
    SinkOption.one_of("encoding", MessageEncoding, "json", "not with format=debezium"),
    SinkOption.one_of(
        "json_mode", JsonMode, "legacy", "of documents with format=debezium, as its json.serialization.mode"
    ),
    SinkOption.one_of(
        "tombstones",
        _Flag,
        "true",
        "after each delete with format=debezium, so that a compacted topic forgets the key",
    ),
    SinkOption.one_of(
        "schemas",
        _Flag,
        "false",
        "with each message of format=debezium its schema, as Kafka Connect's transformations need it",
    ),
    SinkOption(
        "topic",
        "a name with {prefix}, {db}, {coll}",
        "{prefix}.{db}.{coll}",
        "to which topic the rows of a table go; {prefix}.all is one for all",
        parse_topic,
    ),
    SinkOption.one_of(
        "partition_by",
        PartitionBy,
        "key",
        "what decides the partition of a row: its _id, or its table, which keeps all rows of a table in one order",
    ),
    SinkOption(
        _RULES,
        "TABLES:TOPIC, or TABLES:TOPIC:table",
        "none",
        "other topics for some tables, and whether all rows of a table stay in one order there; once for each group",
        TopicRule.parse,
    ),
    _number("partitions", _MOST_PARTITIONS, "6", "of each topic of rows; never changed later"),
    _number("replication", _MOST_REPLICAS, "the brokers' own", "replicas of each topic"),
    SinkOption(
        f"{_SETTING}NAME",
        "as Kafka has it",
        "the brokers' own",
        "a setting of topics of rows when they are created: topic.retention.ms=604800000",
    ),
    SinkOption.one_of(
        "large",
        LargeRow,
        "fail",
        "what becomes of a row that is larger than its topic takes: its table stops, only its key is sent, or it is in a file",
    ),
    SinkOption(
        CLAIMS,
        "file:///.. or s3://.., percent-encoded",
        "none",
        "where such files are, with large=claim_check",
        _claims,
    ),
    SinkOption.one_of("compression", TopicCompression, "lz4", "of what is sent"),
    SinkOption.one_of(
        "existing",
        Existing,
        "refuse",
        "what a create does when a topic has messages already: it is refused, or they are followed by those of this changefeed",
    ),
    SinkOption.one_of(
        "sasl", Sasl, "none", "how USER:PASSWORD@ of the URI prove themselves; each as ${env:..} or ${file:..}"
    ),
    SinkOption(
        "tokenEndpoint",
        "https://.., percent-encoded",
        "none",
        "with sasl=OAUTHBEARER: where ID:SECRET@ of the URI get their tokens (OpenID Connect, client credentials)",
        _endpoint,
    ),
    SinkOption("tokenScope", "as the endpoint wants it", "none", "of such a token"),
    SinkOption.one_of("tls", _Flag, "false", "whether connections are encrypted"),
    SinkOption("tlsCAFile", "a file of the node", "the system's", "who signed the brokers' certificates"),
    SinkOption(
        "tlsCertificateKeyFile", "a file of the node", "none", "certificate and key of this client, in one file"
    ),
)
_OPTIONS = {option.name: option for option in KAFKA_OPTIONS}
