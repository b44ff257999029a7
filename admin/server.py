"""`AdminServer`: serves the admin API on a port, with health and reflection."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from admin.access import Guard
from admin.certificates import ServerCertificates, ServerTls
from admin.cluster_reader import ClusterReader
from admin.desired.desired_store import DesiredStore
from admin.services.changefeed_service import ChangefeedService
from admin.services.node_service import ClusterService, NodeService
from admin.services.table_service import DdlService, TableService
from admin.services.verify_service import VerifyService
from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from admin.stubs.sluice.admin.v1 import admin_pb2_grpc as rpc
from admin.stubs.sluice.admin.v1 import verify_pb2, verify_pb2_grpc
from changefeed.errors import ConfigurationError

_THREADS = 64
_MOST_CALLS = 1_000
_MOST_REQUEST_BYTES = 1 << 20
"""A configuration is a page of text; etcd accepts no larger value."""

_log = structlog.get_logger()


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
        version: str,
    ) -> None:
        self._stopping = threading.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "admin")
        self._server = grpc.server(
            self._threads,
            maximum_concurrent_rpcs=_MOST_CALLS,
            options=(("grpc.max_receive_message_length", _MOST_REQUEST_BYTES), ("grpc.so_reuseport", 0)),
        )
        self._health = health.HealthServicer()
        changefeeds = ChangefeedService(guard, reader, store, self._stopping)
        nodes, tables = NodeService(guard, reader, store), TableService(guard, reader, store)
        ddls, cluster = DdlService(guard, reader, store), ClusterService(guard, reader, version)
        rpc.add_ChangefeedServiceServicer_to_server(changefeeds, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_NodeServiceServicer_to_server(nodes, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_TableServiceServicer_to_server(tables, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_DdlServiceServicer_to_server(ddls, self._server)  # type: ignore[no-untyped-call]  # generated
        rpc.add_ClusterServiceServicer_to_server(cluster, self._server)  # type: ignore[no-untyped-call]  # generated
        verifications = VerifyService(guard, reader, store, self._stopping)
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
            raise ConfigurationError([f"admin.address: cannot listen on {address}: {error}"]) from error
        return int(port)
