"""`NodeProcess`: runs a server process from its start to its end.

    start: clients, mirror, admin API, HTTP ──▶ join: session, roles ──▶ serve ──session lost──▶ join again under a new id
                                                                            │
                                                      stopped: hand tables over, resign, lease, clients

The admin API and HTTP run as long as the process: a node that has lost etcd still reports it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

import structlog

from admin.access import Guard, token_file
from admin.cluster_reader import ClusterReader, ServingNode, unreadable
from admin.desired.desired_store import DesiredStore
from admin.diagnosis import Diagnosis
from admin.http_server import HttpServer
from admin.metrics import Metrics
from admin.server import AdminServer, ServerTls
from admin.services.part_comparer import PartComparer
from admin.services.troubles import not_ready
from changefeed.errors import FencedError, NotFoundError, RetryableError
from changefeed.records.node import NodeHealth, NodeId, NodeRecord, Role
from changefeed.records.requests import ChangefeedId
from console.console import Console
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Tls
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.mirror import Mirror
from coordination.session import Session, open_session
from coordination.write_health import EtcdWrites
from credentials import logging
from credentials.logging import Interruption
from credentials.secrets import allow
from node.configuration import AdminOptions, EtcdOptions, NodeConfiguration
from node.membership import HealthPublisher, Membership, owner_candidate
from owner.source_watch import OplogLeft
from processor.job_runs import JobSetup
from processor.lanes.windows import WindowLimits
from processor.processor import Processor
from processor.spark.pipeline import Pipeline
from processor.spark.runner import SparkRunner
from processor.spark.settings import SparkSettings
from processor.spark.spark_watch import SparkWatch
from processor.spark.stays import Stays

VERSION = version("sluice")
_LOOK_EVERY = 0.5
_HAND_OVER_EVERY = 0.2
_RETRY_SECONDS = 1.0

_log = structlog.get_logger()


class NodeProcess:
    """`run` returns after `stop`; it raises errors that end the process."""

    def __init__(self, configuration: NodeConfiguration) -> None:
        allow(configuration.secret_files)
        self._configuration = configuration
        self._stopping = threading.Event()
        self._layout = Layout(configuration.cluster)
        self._etcd_config = _etcd_config(configuration.etcd)
        self._etcd = EtcdClient(self._etcd_config)
        self._writes = EtcdWrites(self._etcd, self._layout.write_probe)
        self._mirror = Mirror(self._etcd, self._layout.root, apart=self._layout.apart, end=self._layout.unmirrored)
        serving = ServingNode(
            node=self._node,
            not_ready=self.not_ready,
            stale=self._cannot_serve,
            unwritable=lambda: self._writes.trouble,
        )
        self._reader = ClusterReader(self._mirror, self._layout, serving)
        self._store = DesiredStore(self._etcd, self._layout)
        self._metrics = Metrics()
        self._session_trouble = Interruption(_log, "node_waits_for_etcd", "node_goes_on")
        self._membership: Membership | None = None
        self._draining = False
        self._started_at = datetime.now(UTC)
        log_format = {f"spark.executorEnv.{logging.VARIABLE}": str(configuration.log_format)}
        options = {**log_format, **configuration.spark.conf}
        self._spark = SparkRunner(SparkSettings(master=configuration.spark.master, options=options))
        self._stays = Stays(self._spark)
        self._watch = SparkWatch(self._spark.probe) if Role.PROCESSOR in configuration.roles else None
        self._metrics.describe_cluster(self._reader, self._oplog_left)
        self._metrics.describe_process(VERSION, self._spark.health if self._watch is not None else None)
        self._admin = AdminServer(
            configuration.admin.address,
            reader=self._reader,
            store=self._store,
            guard=_guard(configuration.admin),
            tls=_server_tls(configuration.admin),
            diagnosis=Diagnosis(version=VERSION, configuration=configuration.shown(), registry=self._metrics.registry),
        )
        self._compare = PartComparer(self._reader)
        self._console = self._made_console(configuration)
        self._http = HttpServer(
            configuration.http_address, self._metrics.registry, self.not_ready, partial(unreadable, self._reader)
        )

    @property
    def admin_address(self) -> str:
        """With the actual port if the configured port is 0."""
        host = self._configuration.admin.address.rpartition(":")[0]
        return self._configuration.admin.advertise or f"{host}:{self._admin.port}"

    @property
    def http_address(self) -> str:
        return f"{self._configuration.http_address.rpartition(':')[0]}:{self._http.port}"

    def _made_console(self, configuration: NodeConfiguration) -> Console | None:
        if configuration.console_address is None:
            return None
        tls, guard = _server_tls(configuration.admin), _guard(configuration.admin)
        return Console(configuration.console_address, tls, guard, self._reader, self._admin.services, self._oplog_left)

    @property
    def console_address(self) -> str:
        """Empty without a console."""
        address = self._configuration.console_address
        return f"{address.rpartition(':')[0]}:{self._console.port}" if address and self._console else ""

    def stop(self) -> None:
        """May be called from a signal handler, and twice."""
        self._stopping.set()

    def run(self) -> None:
        if self._watch is not None:
            self._watch.start()
        self._writes.start()
        self._mirror.start()
        self._admin.start()
        self._http.start()
        if self._console is not None:
            self._console.start()
        addresses = {"admin": self.admin_address, "http": self.http_address, "console": self.console_address}
        _log.info("node_started", version=VERSION, **addresses)
        try:
            while not self._stopping.is_set():
                membership = self._join()
                if membership is not None:
                    self._live(membership)
        finally:
            self._end()

    def not_ready(self) -> str:
        """Why the node is not ready; empty when it is."""
        health = self._health
        return self._cannot_serve() or (not_ready(health) if health is not None else "")

    def _cannot_serve(self) -> str:
        """Why the node cannot take part in the cluster, and so not answer for it either."""
        membership, trouble = self._membership, self._writes.trouble
        if self._stopping.is_set():
            return "the node is stopping"
        if membership is None or not membership.alive:
            return _because("the node has no session in etcd", trouble.message if trouble else "")
        if not self._mirror.current:
            return _because("the node does not follow etcd", self._mirror.interrupted_by)
        if trouble is not None:
            return f"the node cannot write to etcd since {trouble.at:%H:%M:%S} UTC: {trouble.message}"
        return "" if membership.record(self._mirror.view()) else "the node does not see itself in etcd yet"

    @property
    def _health(self) -> NodeHealth | None:
        return self._watch.health if self._watch is not None else None

    def _join(self) -> Membership | None:
        """Opens a session. None if the process is stopped before."""
        while not self._stopping.is_set():
            try:
                session, store = open_session(
                    self._etcd,
                    self._layout,
                    name=self._configuration.name,
                    describe=self._describe,
                    ttl=self._configuration.session_ttl,
                )
            except (RetryableError, FencedError) as error:
                self._session_trouble.occurred(error)
                self._stopping.wait(_RETRY_SECONDS)
            else:
                self._session_trouble.over()
                self._metrics.sessions.inc()
                return self._member(session, store)
        return None

    def _member(self, session: Session, store: FencedStore) -> Membership:
        processor = None
        if self._watch is not None:
            limits = WindowLimits()
            jobs = Pipeline(self._spark, limits, self._watch, self._stays)
            setup = JobSetup(jobs=jobs, windows=limits, figures=self._metrics)
            processor = Processor(session, store, self._mirror, self._layout, self._etcd_config, setup)
        return Membership(
            session,
            self._mirror,
            HealthPublisher(self._etcd, self._layout.node(session.node), lambda: self._health),
            candidate=partial(owner_candidate, session, self._etcd, self._mirror, self._layout, self._compare)
            if Role.OWNER in self._configuration.roles
            else None,
            processor=processor,
            elected=self._metrics.elections.inc,
        )

    def _describe(self, node: NodeId) -> NodeRecord:
        return NodeRecord(
            id=node,
            name=self._configuration.name,
            admin_address=self.admin_address,
            roles=frozenset(self._configuration.roles),
            version=VERSION,
            started_at=self._started_at,
            draining=self._draining,
            health=self._health,
        )

    def _live(self, membership: Membership) -> None:
        _log.info("node_joined", node=membership.node, roles=",".join(sorted(self._configuration.roles)))
        with membership:
            self._membership = membership
            while membership.alive and not self._stopping.is_set():
                self._tick(membership)
                self._stopping.wait(_LOOK_EVERY)
            self._admin.healthy(serving=False)
            if self._stopping.is_set():
                self._hand_over(membership)
        self._metrics.leads.set(False)
        _log.info("node_left", node=membership.node)
        self._stopping.wait(_RETRY_SECONDS)

    def _tick(self, membership: Membership) -> None:
        view = self._mirror.view()
        membership.tick()
        record = membership.record(view)
        if record is not None:
            self._draining = record.draining
        self._metrics.leads.set(membership.leads)
        self._admin.healthy(serving=not self._cannot_serve())

    def _hand_over(self, membership: Membership) -> None:
        """Drains this node, and waits until other nodes have its tables, or no other node accepts tables."""
        if self._watch is None or not membership.alive:
            return
        deadline = time.monotonic() + self._configuration.grace.total_seconds()
        asked = False
        while membership.alive and time.monotonic() < deadline:
            try:
                if not self._others_can_take(membership):
                    return
                if not asked:
                    self._store.drain(membership.node)
                    asked = True
                    _log.info("node_hands_over", node=membership.node)
            except NotFoundError:
                return
            except RetryableError as error:
                self._session_trouble.occurred(error)
            membership.tick()
            time.sleep(_HAND_OVER_EVERY)
        _log.warning("node_kept_tables", node=membership.node)

    def _others_can_take(self, membership: Membership) -> bool:
        """Whether this node has tables of running changefeeds, and another node accepts tables."""
        with self._reader.read(reports=False) as view:
            others = [
                node for node, stored in view.nodes.items() if node != membership.node and stored.record.takes_tables
            ]
            running = [
                known
                for known in view.changefeeds().readable.values()
                if known.status is not None and known.status.lifecycle.running
            ]
            mine = (known.assignments.get(membership.node) for known in running)
            return bool(others) and any(assigned is not None and assigned.record.tables for assigned in mine)

    def _end(self) -> None:
        """Stops the servers first, then the Spark work, then the connections to etcd."""
        if self._console is not None:
            self._console.stop()
        self._admin.stop()
        self._http.stop()
        if self._watch is not None:
            self._watch.stop()
        self._stays.close()
        self._spark.stop()
        self._mirror.stop()
        self._etcd.close()
        self._writes.stop()
        _log.info("node_stopped")

    def _node(self) -> NodeId | None:
        return self._membership.node if self._membership is not None else None

    def _oplog_left(self) -> Mapping[ChangefeedId, OplogLeft]:
        return self._membership.oplog_left if self._membership is not None else {}


def _because(what: str, reason: str) -> str:
    return f"{what}: {reason}" if reason else what


def _etcd_config(options: EtcdOptions) -> EtcdConfig:
    tls = Tls(ca=options.ca, cert=options.cert, key=options.key) if options.ca else None
    return EtcdConfig(endpoints=options.endpoints, tls=tls, user=options.user, password_file=options.password_file)


def _guard(options: AdminOptions) -> Guard:
    if options.token_file is None:
        return Guard()
    return Guard(token_file(options.token_file, name="admin.token_file").value)


def _server_tls(options: AdminOptions) -> ServerTls | None:
    if options.cert is None or options.key is None:
        return None
    return ServerTls(cert=options.cert, key=options.key, client_ca=options.client_ca)
