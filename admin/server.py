"""`AdminServer`: serves the admin API on a port, with health, reflection, and a certificate that is read again when its files are replaced."""

from __future__ import annotations

import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import grpc
import structlog
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
from credentials.secrets import stamp

_log = structlog.get_logger()


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
                self._server.add_secure_port(address, ServerCertificates(tls).credentials())
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


class ServerCertificates:
    """Files that do not belong together, as while they are replaced one by one, change nothing: they are looked at again at the next call."""

    def __init__(self, tls: ServerTls) -> None:
        self._tls = tls
        self._files = [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None]
        self._stamp = stamp(self._files)
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(
            self._first, self._replaced, require_client_authentication=self._tls.client_ca is not None
        )

    def _replaced(self) -> grpc.ServerCertificateConfiguration | None:
        """GRPC asks before each handshake. None: nothing has changed."""
        found = stamp(self._files)
        if found == self._stamp:
            return None
        try:
            configuration = self._read()
        except ConfigurationError as error:
            _log.warning("certificate_not_read_again", error=str(error))
            return None
        self._stamp = found
        _log.info("certificate_read_again", cert=str(self._tls.cert))
        return configuration

    def _read(self) -> grpc.ServerCertificateConfiguration:
        try:
            _check_pair(self._tls.cert, self._tls.key)
            client_ca = self._tls.client_ca.read_bytes() if self._tls.client_ca else None
            return grpc.ssl_server_certificate_configuration(
                ((self._tls.key.read_bytes(), self._tls.cert.read_bytes()),), client_ca
            )
        except OSError as error:
            raise ConfigurationError([f"admin.cert, admin.key, admin.client_ca: {error}"]) from None


def _check_pair(cert: Path, key: Path) -> None:
    """Raises OSError, of which errors of TLS are a kind."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key)
