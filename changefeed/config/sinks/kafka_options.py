"""`KafkaSinkOptions`: what the URI of a sink in Kafka says. Pure.

    kafka://b1.example:9092,b2.example:9092/shop                      topics shop.<database>.<collection>, of 6 partitions
    kafka://b1:9092/shop?format=debezium&partitions=12&replication=3&topic.retention.ms=604800000
    kafka://${env:USER}:${file:/run/secrets/kafka}@b1:9093/shop?sasl=SCRAM-SHA-512&tls=true&tlsCAFile=/etc/ca.pem
    kafka://b1:9092/shop?large=claim_check&claims=s3%3A%2F%2Fbucket%2Fclaims%3Fregion%3Deu-central-1

The number of partitions belongs to the changefeed for life: the place of a key is computed from it, and a topic with another number
is an error. So the default never changes. Only credentials may be references, in the URI and in that of `claims`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
    one_of,
    refuse_unknown,
)

DEFAULT_PORT = ":9092"
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC = re.compile(r"(?:[A-Za-z0-9._-]|\{prefix\}|\{db\}|\{coll\})+")
_SETTING = "topic."
_SETTING_NAME = re.compile(r"[a-z][a-z.]{2,60}")
_NUMBER = re.compile(r"\d{1,4}")
_MOST_PARTITIONS, _MOST_REPLICAS = 1000, 9
CLAIMS = "claims"
_ACCESS = ("sasl", "tls", "tlsCAFile", "tlsCertificateKeyFile")


class PartitionBy(StrEnum):
    KEY = "key"
    TABLE = "table"


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


class _Flag(StrEnum):
    TRUE = "true"
    FALSE = "false"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAccess:
    """How a connection is made. `reference`: a URI with no more than this, with the user, which a process expands when it connects."""

    brokers: str
    """As `bootstrap.servers`."""
    sasl: Sasl | None = None
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
            refuse_unknown(name, (*_READERS, f"{_SETTING}NAME"))
            found[name] = _READERS[name](value)
        _refuse_compaction(settings, found)
        access = _access(uri, hosts, bool(has_user and user), found)
        return cls(
            access=access, prefix=prefix, messages=_messages(found), settings=tuple(sorted(settings)), **_checked(found)
        )

    def __str__(self) -> str:
        return f"kafka://{self.access.brokers}/{self.prefix}"


def _refuse_compaction(settings: Sequence[tuple[str, str]], found: Mapping[str, Any]) -> None:
    if (
        "compact" in dict(settings).get("cleanup.policy", "")
        and found.get("format", FormatName.SLUICE) is FormatName.SLUICE
    ):
        raise Mistake(
            "found topic.cleanup.policy with compact; DDL and watermarks of format=sluice have no key, and brokers refuse them in a compacted "
            "topic: write topic.cleanup.policy=delete, or another format"
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
        tls=found.pop("tls", _Flag.FALSE) is _Flag.TRUE,
        ca_file=found.pop("tlsCAFile", ""),
        certificate_key_file=found.pop("tlsCertificateKeyFile", ""),
        reference=_reference(uri),
    )
    if has_user and access.sasl is None:
        raise Mistake(f"found a user and no sasl; add sasl={', '.join(Sasl)}, or leave the user out")
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
    given = {name for name in ("encoding", "json_mode", "tombstones") if name in found}
    options = MessageOptions(
        format=format,
        encoding=found.pop("encoding", MessageEncoding.JSON),
        json_mode=found.pop("json_mode", JsonMode.LEGACY),
        tombstones=found.pop("tombstones", _Flag.TRUE) is _Flag.TRUE,
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


def _number(name: str, most: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        number = int(value) if _NUMBER.fullmatch(value) else 0
        if not 1 <= number <= most:
            raise Mistake(f"found {name}={value}; write 1 to {most}")
        return number

    return read


def _topic(value: str) -> str:
    if not _TOPIC.fullmatch(value):
        raise Mistake(
            f"found topic={value}; write a name of letters, digits, '.', '_' and '-' with {{prefix}}, {{db}} and {{coll}} in it, for example "
            f"{{prefix}}.{{db}}.{{coll}}, or {{prefix}}.all for one topic"
        )
    return value


def _claims(value: str) -> StorePlace:
    if not value.startswith(("file://", "s3://")):
        raise Mistake(f"found claims={shown(value)}; write file:///DIRECTORY or s3://BUCKET/PREFIX, percent-encoded")
    return FileSinkOptions.parse(value).place


def _text(value: str) -> str:
    return value


_READERS: Mapping[str, Callable[[str], Any]] = {
    "format": one_of(FormatName, "format"),
    "encoding": one_of(MessageEncoding, "encoding"),
    "json_mode": one_of(JsonMode, "json_mode"),
    "tombstones": one_of(_Flag, "tombstones"),
    "topic": _topic,
    "partition_by": one_of(PartitionBy, "partition_by"),
    "partitions": _number("partitions", _MOST_PARTITIONS),
    "replication": _number("replication", _MOST_REPLICAS),
    "large": one_of(LargeRow, "large"),
    CLAIMS: _claims,
    "compression": one_of(TopicCompression, "compression"),
    "existing": one_of(Existing, "existing"),
    "sasl": one_of(Sasl, "sasl"),
    "tls": one_of(_Flag, "tls"),
    "tlsCAFile": _text,
    "tlsCertificateKeyFile": _text,
}

KAFKA_OPTIONS = (
    SinkOption(
        name="format",
        values=", ".join(FormatName),
        default="sluice",
        about="sluice: rows, DDL and watermarks in one provable order; or as the connectors of Debezium or MongoDB write them",
    ),
    SinkOption(name="encoding", values=", ".join(MessageEncoding), default="json", about="not with format=debezium"),
    SinkOption(
        name="json_mode",
        values=", ".join(JsonMode),
        default="legacy",
        about="of documents with format=debezium, as its json.serialization.mode",
    ),
    SinkOption(
        name="tombstones",
        values="true, false",
        default="true",
        about="after each delete with format=debezium, so that a compacted topic forgets the key",
    ),
    SinkOption(
        name="topic",
        values="a name with {prefix}, {db}, {coll}",
        default="{prefix}.{db}.{coll}",
        about="to which topic the rows of a table go; {prefix}.all is one for all",
    ),
    SinkOption(
        name="partition_by",
        values=", ".join(PartitionBy),
        default="key",
        about="what decides the partition of a row: its _id, or its table, which keeps all rows of a table in one order",
    ),
    SinkOption(
        name="partitions",
        values=f"1 to {_MOST_PARTITIONS}",
        default="6",
        about="of each topic of rows; never changed later",
    ),
    SinkOption(
        name="replication", values=f"1 to {_MOST_REPLICAS}", default="the brokers' own", about="replicas of each topic"
    ),
    SinkOption(
        name="topic.NAME",
        values="as Kafka has it",
        default="the brokers' own",
        about="a setting of topics of rows when they are created: topic.retention.ms=604800000",
    ),
    SinkOption(
        name="large",
        values=", ".join(LargeRow),
        default="fail",
        about="what becomes of a row that is larger than its topic takes: its table stops, only its key is sent, or it is in a file",
    ),
    SinkOption(
        name=CLAIMS,
        values="file:///.. or s3://.., percent-encoded",
        default="none",
        about="where such files are, with large=claim_check",
    ),
    SinkOption(name="compression", values=", ".join(TopicCompression), default="lz4", about="of what is sent"),
    SinkOption(
        name="existing",
        values=", ".join(Existing),
        default="refuse",
        about="what a create does when a topic has messages already: it is refused, or they are followed by those of this changefeed",
    ),
    SinkOption(
        name="sasl",
        values=", ".join(Sasl),
        default="none",
        about="how USER:PASSWORD@ of the URI prove themselves; each as ${env:..} or ${file:..}",
    ),
    SinkOption(name="tls", values="true, false", default="false", about="whether connections are encrypted"),
    SinkOption(
        name="tlsCAFile",
        values="a file of the node",
        default="the system's",
        about="who signed the brokers' certificates",
    ),
    SinkOption(
        name="tlsCertificateKeyFile",
        values="a file of the node",
        default="none",
        about="certificate and key of this client, in one file",
    ),
)
