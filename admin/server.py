"""`AdminServer`: serves the admin API on a port, with health, reflection, and a certificate that is read again when its files are replaced."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from admin.access import Guard
from admin.cluster_reader import ClusterReader
from admin.desired.desired_store import DesiredStore
from admin.diagnosis import Diagnosis
from admin.services.changefeed_service import ChangefeedService
from admin.services.node_service import ClusterService, NodeService
from admin.services.table_service import DdlService, TableService
from admin.services.verify_service import VerifyService
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import admin_pb2_grpc as rpc
from admin.stubs.sluice.admin.v1 import verify_pb2, verify_pb2_grpc
from changefeed.errors import ConfigurationError
from credentials.secrets import FreshFiles

_THREADS = 64
_MOST_CALLS = 1_000
_MOST_REQUEST_BYTES = 1 << 20
"""A configuration is a page of text; etcd accepts no larger value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """For another door of the node, which calls their methods with an `AdmittedCall`."""

    changefeeds: ChangefeedService
    nodes: NodeService
    tables: TableService
    ddls: DdlService
    verifications: VerifyService


class AdminServer:
    """Listens between `start` and `stop`."""

    def __init__(
        self,
        address: str,
        *,
        reader: ClusterReader,
        store: DesiredStore,
        guard: Guard,
        tls: ServerTls | None,
        diagnosis: Diagnosis,
    ) -> None:
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "admin")
        self._server = grpc.server(
            self._threads,
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=(("grpc.max_receive_message_length", _MOST_REQUEST_BYTES), ("grpc.so_reuseport", 0)),
        )
        self._health = health.HealthServicer()
        self.services = Services(
            changefeeds=ChangefeedService(guard, reader, store, self._stopping),
            nodes=NodeService(guard, reader, store, diagnosis),
            tables=TableService(guard, reader, store),
            ddls=DdlService(guard, reader, store),
            verifications=VerifyService(guard, reader, store, self._stopping),
        )
        nodes, tables, ddls = self.services.nodes, self.services.tables, self.services.ddls
        cluster = ClusterService(guard, reader, diagnosis.version)
        rpc.add_ChangefeedServiceServicer_to_server(self.services.changefeeds, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_NodeServiceServicer_to_server(nodes, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_TableServiceServicer_to_server(tables, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_DdlServiceServicer_to_server(ddls, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_ClusterServiceServicer_to_server(cluster, self._server)  # type: ignore[no-untyped-call]  # generated
        verifications = self.services.verifications
        verify_pb2_grpc.add_VerifyServiceServicer_to_server(verifications, self._server)  # type: ignore[no-untyped-call]  # generated
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        files = (pb.DESCRIPTOR, verify_pb2.DESCRIPTOR)
        names = [service.full_name for file in files for service in file.services_by_name.values()]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._names = ("", *names)
        self.port = self._listen(address, tls)

    def start(self) -> None:
        self._server.start()
        self.healthy(serving=False)

    def stop(self, grace: timedelta = timedelta(seconds=2)) -> None:
        """Running calls have the grace period to end; streams are ended. May be called twice."""
        self._health.enter_graceful_shutdown()
        self._stopping.set()
        self._server.stop(grace.total_seconds()).wait()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def healthy(self, *, serving: bool) -> None:
        kinds = health_pb2.HealthCheckResponse
        for name in self._names:
            self._health.set(name, kinds.SERVING if serving else kinds.NOT_SERVING)

    def _listen(self, address: str, tls: ServerTls | None) -> int:
        try:
            port = (
                self._server.add_secure_port(address, _credentials(tls))
                if tls is not None
                else self._server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise ConfigurationError(
                [f"admin.address: cannot listen on {address}: {_why_taken(address) or error}"]
            ) from None
        return int(port)


def _why_taken(address: str) -> str:
    """GRPC only says that it failed."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_server(
            (host.strip("[]"), int(port)), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        ).close()
    except OSError as error:
        return error.strerror or ""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Paths of PEM files. `client_ca`: only clients with a certificate of this CA are admitted."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    files = FreshFiles("admin.cert, admin.key, admin.client_ca", tls.files, partial(_read, tls))
    given = first = files.value()

    def replaced() -> grpc.ServerCertificateConfiguration | None:
        """GRPC asks before each handshake. None: nothing has changed."""
        nonlocal given
        former, given = given, files.value()
        return None if given is former else given

    return grpc.dynamic_ssl_server_credentials(first, replaced, require_client_authentication=tls.client_ca is not None)


def _read(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    pair = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        pair.load_cert_chain(tls.cert, tls.key)  # an error of TLS is an OSError
        client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
        return grpc.ssl_server_certificate_configuration(((tls.key.read_bytes(), tls.cert.read_bytes()),), client_ca)
    except OSError as error:
        raise ConfigurationError([f"admin.cert, admin.key, admin.client_ca: {error}"]) from None
