"""`KafkaBroker`: one real broker, which is its own controller (KRaft). It keeps its topics over restarts and kill -9."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from devstack.kafka.release import kafka_classpath, run_tool
from devstack.kafka.security import ClientSettings, KafkaSecurity
from devstack.ports import free_port
from devstack.process import ServerProcess

_JAVA = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN")
_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",  # a product that needs it would create topics with the wrong settings
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.segment.bytes": str(16 << 20),
    "log.index.size.max.bytes": str(64 << 10),  # each partition reserves two indexes
}


class KafkaBroker(ServerProcess):
    """`properties`: further settings of the broker. `security`: users with passwords and rights, TLS; without it everybody may do everything."""

    def __init__(
        self,
        directory: Path,
        log: Path,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        security: KafkaSecurity | None = None,
    ) -> None:
        super().__init__("kafka", directory, log)
        self.port = port or free_port()
        self._controller_port = free_port()
        self._properties = properties or {}
        self._security = security

    @property
    def ports(self) -> tuple[int, ...]:
        return self.port, self._controller_port

    @property
    def bootstrap(self) -> str:
        """`host:port`, as in `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def client(self) -> ClientSettings:
        """The settings of a client of the administrator."""
        security: ClientSettings = self._security.client if self._security is not None else {}
        return {"bootstrap.servers": self.bootstrap, **security}

    def topics(self) -> list[str]:
        """Those that are not Kafka's own."""
        found = AdminClient(self.client).list_topics(timeout=30).topics
        return sorted(name for name in found if not name.startswith("__"))

    def settings(self, topic: str) -> dict[str, str]:
        """Of a topic."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        admin = AdminClient(self.client)
        return {
            name: str(entry.value) for name, entry in admin.describe_configs([resource])[resource].result(30).items()
        }

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        admin = AdminClient(self.client)
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)

    def command(self) -> list[str]:
        java = shutil.which("java") or "java"
        settings = self._write_settings()
        if not (self.data / "meta.properties").exists():
            run_tool("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings))
        return [java, *_JAVA, "-cp", kafka_classpath(), "kafka.Kafka", str(settings)]

    def ready(self) -> bool:
        with suppress(KafkaException):
            found = AdminClient({**self.client, "log_level": 0}).list_topics(timeout=1)
            return found.controller_id == 1 and bool(found.brokers)
        return False

    def _write_settings(self) -> Path:
        protocol = self._security.protocol if self._security is not None else "PLAINTEXT"
        clients, controller = f"CLIENT://{self.bootstrap}", f"CONTROLLER://127.0.0.1:{self._controller_port}"
        settings = {
            **_PROPERTIES,
            "listeners": f"{clients},{controller}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": f"CLIENT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "CLIENT",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self.data),
            **(self._security.properties if self._security is not None else {}),
            **self._properties,
        }
        file = self.directory / "server.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        return file
