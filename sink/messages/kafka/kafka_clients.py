"""`kafka_clients`: the clients of a sink's brokers, opened once for a process, and again when credentials have changed.

A producer belongs to one run at a time. It comes back when all that it had is acknowledged. One that failed does not come back: what it
still had would be sent later, with a gap before it.

`translated` and `sink_error` make their errors errors of Sluice. What may go away by itself is `SinkUnavailable`: no broker, no leader, too few replicas, a broker's disk. What somebody has to change is
`SinkRefused`, with what to change. Both are tried again.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote_plus

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from changefeed.config.sinks.kafka_options import LEAST_MESSAGE_BYTES, KafkaAccess, KafkaSinkOptions, Sasl
from changefeed.config.uri import ConnectionUri
from changefeed.driver_text import in_one_line
from changefeed.errors import ConfigurationError, SinkRefused, SinkUnavailable
from changefeed.table import COPIED_AGAIN
from credentials.redaction import redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import Expansion, expansion

MOST_BYTES = 64 << 20
"""What a producer holds at most. It takes no message that is larger than that, also when it is empty."""
_LINGER_MS = 20
_SOCKET_MS = 10_000
_LARGEST = 1_000_000_000
_MOST = 16
_MOST_IDLE = 4
_QUIET = 3

_log = structlog.get_logger()
Settings: TypeAlias = dict[str, str | int | float | bool]


class LentProducer:
    """One of them, and what it has reported since it was lent."""

    def __init__(self, settings: Settings) -> None:
        self.failed: list[tuple[KafkaError, str]] = []
        self.trouble: KafkaError | None = None
        """The one with a connection that says most: it explains why nothing is acknowledged."""
        self.producer = Producer(
            {**settings, "on_delivery": self._delivered, "error_cb": self._troubled}, logger=_CLIENT_LOG
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append((error, str(message.topic())))

    def _troubled(self, error: KafkaError) -> None:
        self.trouble = _telling(self.trouble, error)

    def lend(self) -> LentProducer:
        self.failed.clear()
        self.trouble = None
        return self


class KafkaClients:
    """For one kind of access. In any thread."""

    def __init__(self, options: KafkaSinkOptions, found: Expansion) -> None:
        self.expansion = found
        self._settings = client_settings(options.access, found.uri)
        self._compression = options.compression
        self._lock = threading.Lock()
        self._idle: list[LentProducer] = []
        self._admin: AdminClient | None = None
        self._trouble: KafkaError | None = None

    @property
    def admin(self) -> AdminClient:
        with self._lock:
            if self._admin is None:
                with translated("opening"):
                    self._admin = AdminClient(self._settings, error_cb=self._troubled, logger=_CLIENT_LOG)
            return self._admin

    def forget_admin(self) -> None:
        """What it knows of the brokers is out of date: the next request gets a new one."""
        with self._lock:
            self._admin = None

    def _troubled(self, error: KafkaError) -> None:
        self._trouble = _telling(self._trouble, error)

    def why(self) -> KafkaError | None:
        """What has become of the connections since the last answer. Requests only say that nobody answers."""
        while self.admin.poll(0):
            pass
        return self._trouble

    def answered(self) -> None:
        self._trouble = None

    @property
    def consumer_settings(self) -> dict[str, Any]:
        """Of one that reads named partitions only, and saves no place."""
        return {
            **self._settings,
            "error_cb": self._troubled,
            "logger": _CLIENT_LOG,
            "group.id": "sluice",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
        }

    def take(self) -> LentProducer:
        with self._lock:
            if self._idle:
                return self._idle.pop().lend()
        with translated("opening"):
            return LentProducer(
                {
                    **self._settings,
                    "enable.idempotence": True,  # acks=all with it
                    "enable.gapless.guarantee": True,  # nothing is sent behind a batch that a broker refused
                    "message.timeout.ms": 0,  # a message that is given up before a later one would be a gap: the run gives up as a whole
                    "delivery.report.only.error": True,
                    "linger.ms": _LINGER_MS,
                    "batch.size": LEAST_MESSAGE_BYTES,
                    "message.max.bytes": _LARGEST,  # the topic decides
                    "queue.buffering.max.kbytes": MOST_BYTES >> 10,
                    "compression.type": self._compression.value,
                }
            )

    def give_back(self, lent: LentProducer) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(lent)


OpenClients: TypeAlias = Callable[[], KafkaClients]
"""With the credentials of now."""


def kafka_clients(options: KafkaSinkOptions, files: SecretFiles | None = None) -> KafkaClients:
    found = expansion(ConnectionUri(options.access.reference), files)
    key = options.access.reference, options.compression.value
    with _lock:
        kept = _clients.pop(key, None)
        if kept is None or kept.expansion != found:
            kept = KafkaClients(options, found)
        _clients[key] = kept
        for oldest in list(_clients)[:-_MOST]:
            del _clients[oldest]
        return kept


_lock = threading.Lock()
_clients: dict[tuple[str, str], KafkaClients] = {}


def client_settings(access: KafkaAccess, expanded: str) -> Settings:
    """`expanded`: the URI without references. Raises if a file is missing, which the client would say without its name."""
    user, has_user, _ = expanded.partition("://")[2].partition("?")[0].rpartition("@")
    name, _, password = user.partition(":")
    if (access.sasl is not None) != bool(has_user):
        raise ConfigurationError(
            [
                f"sink: found sasl={access.sasl} and no user; write kafka://USER:PASSWORD@..., each as ${{env:NAME}} or ${{file:/path}}"
            ]
        )
    for option, file in (("tlsCAFile", access.ca_file), ("tlsCertificateKeyFile", access.certificate_key_file)):
        if file and not Path(file).is_file():
            raise ConfigurationError([f"sink: {option}: {file} is no file on this node; check its name"])
    found: Settings = {
        "bootstrap.servers": access.brokers,
        "client.id": "sluice",
        "security.protocol": f"{'SASL_' if access.sasl else ''}{'SSL' if access.tls else 'PLAINTEXT'}",
        "socket.timeout.ms": _SOCKET_MS,
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1000,
        "log_level": _QUIET,
    }
    if access.sasl is Sasl.OAUTH:
        found |= {
            "sasl.mechanism": access.sasl.value,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": unquote_plus(name),
            "sasl.oauthbearer.client.secret": unquote_plus(password),
            "sasl.oauthbearer.token.endpoint.url": access.token_endpoint,
            "sasl.oauthbearer.scope": access.token_scope,
        }
    elif access.sasl is not None:
        found |= {
            "sasl.mechanism": access.sasl.value,
            "sasl.username": unquote_plus(name),
            "sasl.password": unquote_plus(password),
        }
    if access.ca_file:
        found["ssl.ca.location"] = access.ca_file
    if access.certificate_key_file:
        found |= {
            "ssl.certificate.location": access.certificate_key_file,
            "ssl.key.location": access.certificate_key_file,
        }
    return found


def _telling(before: KafkaError | None, error: KafkaError) -> KafkaError:
    """A wrong password is followed by "all brokers are down", which says less."""
    return before if before is not None and before.code() in REMEDIES and error.code() not in REMEDIES else error


_NUMBER = re.compile(r"\d+")
_QUIET_SECONDS = 60.0
_MOST_TEXTS = 1_000


class _ClientLog:
    """What the client would write to the standard error, each text once a minute: it tells each try to connect. Its errors come to the callers, too."""

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def log(self, level: int, text: str, *values: Any) -> None:  # noqa: ARG002 - the client has few levels
        said = redacted(text % values if values else text)
        alike, now = _NUMBER.sub("", said), time.monotonic()
        if now < self._told_at.get(alike, -_QUIET_SECONDS) + _QUIET_SECONDS:
            return
        if len(self._told_at) >= _MOST_TEXTS:
            self._told_at.clear()
        self._told_at[alike] = now
        _log.info("kafka_client_logged", text=said)


_CLIENT_LOG = _ClientLog()


_RIGHTS = "grant the rights that docs/how-to/kafka.md lists"
_USER = "check user, password and sasl"
_URI = "check the options of the sink's URI"
_TOPIC = (
    f"it was deleted, with all messages in it: create it again with the same partitions and have its tables {COPIED_AGAIN}, or "
    "create another changefeed"
)
OTHER_TOPIC = (
    "give the table another topic (topics=DB.COLL:NAME), leave it out (filter.tables), or write another prefix"
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
            *(KafkaError.POLICY_VIOLATION, KafkaError.INVALID_REQUEST),
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
    KafkaError.TOPIC_EXCEPTION: OTHER_TOPIC,
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
