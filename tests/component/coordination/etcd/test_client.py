"""The client's behaviour that needs a real server: deadlines, failover, restarts, TLS and passwords."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from etcd3 import etcdrpc as rpc

from changefeed.errors import CoordinationRefused, CoordinationUnavailable, OutcomeUnknown
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put, Tls, Watch
from devstack.etcd.server import EtcdServer
from devstack.ports import free_port
from tests.until import until

SOON = timedelta(seconds=5)
QUICK = timedelta(seconds=1)


def next_revision(watch: Watch) -> int:
    update = watch.next(SOON)
    assert update is not None
    return update.revision


class TestDeadlines:
    """A frozen etcd keeps its connections open and does not answer."""

    @pytest.fixture
    def frozen(self, own_etcd: EtcdServer, freeze: Callable[[EtcdServer], None]) -> Iterator[EtcdClient]:
        with EtcdClient(EtcdConfig(endpoints=(own_etcd.endpoint,), timeout=QUICK)) as client:
            client.range("/")
            freeze(own_etcd)
            yield client

    @pytest.mark.parametrize(
        "call",
        [
            lambda client: client.get("/a"),
            lambda client: client.range("/"),
            lambda client: client.txn([], [Put("/a", b"")]),
            lambda client: client.watch("/", 1),
            lambda client: client.grant(SOON),
            lambda client: client.keep_alive(1, QUICK),
            lambda client: client.revoke(1),
            lambda client: client.time_to_live(1),
        ],
        ids=["get", "range", "txn", "watch", "grant", "keep_alive", "revoke", "time_to_live"],
    )
    def test_no_call_outlasts_its_deadline(self, frozen: EtcdClient, call: Callable[[EtcdClient], object]) -> None:
        """Etcd stays frozen: without a deadline the call would not end."""
        with pytest.raises(CoordinationUnavailable):
            call(frozen)

    def test_a_transaction_without_an_answer_has_an_unknown_outcome(self, frozen: EtcdClient) -> None:
        with pytest.raises(OutcomeUnknown):
            frozen.txn([], [Put("/a", b"")])


def test_a_client_finds_an_etcd_that_restarted(own_etcd: EtcdServer) -> None:
    with EtcdClient(EtcdConfig(endpoints=(own_etcd.endpoint,))) as client:
        written = client.txn([], [Put("/a", b"1")]).revision
        own_etcd.kill()
        with pytest.raises(CoordinationUnavailable):
            client.get("/a")
        own_etcd.start()

        def answers() -> bool:
            try:
                kv = client.get("/a")
            except CoordinationUnavailable:
                return False
            return kv is not None and kv.mod_rev == written

        until(answers)


def test_a_write_that_cannot_be_sent_is_not_unknown(own_etcd: EtcdServer) -> None:
    with EtcdClient(EtcdConfig(endpoints=(own_etcd.endpoint,))) as client:
        own_etcd.kill()
        with pytest.raises(CoordinationUnavailable) as caught:
            client.txn([], [Put("/a", b"")])
        assert not isinstance(caught.value, OutcomeUnknown)


def test_a_member_that_is_away_is_passed_over(own_etcd: EtcdServer) -> None:
    away = f"127.0.0.1:{free_port()}"
    with EtcdClient(EtcdConfig(endpoints=(away, own_etcd.endpoint))) as client:
        rev = client.txn([], [Put("/a", b"")]).revision
        watch = client.watch("/a", rev)
        assert next_revision(watch) == rev


def test_a_member_that_hangs_is_left_for_the_next(
    own_etcd: EtcdServer, etcd_endpoint: str, freeze: Callable[[EtcdServer], None]
) -> None:
    with EtcdClient(EtcdConfig(endpoints=(own_etcd.endpoint, etcd_endpoint), timeout=QUICK)) as client:
        client.range("/")
        freeze(own_etcd)
        client.range("/")
        assert client._connection.preferred.address == etcd_endpoint, "the next call asks the member that answered"


def test_a_closed_client_says_so_and_its_watches_end(etcd_endpoint: str) -> None:
    client = EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,)))
    watch = client.watch("/nothing/", 1)
    client.close()
    client.close()
    for call in (lambda: client.get("/a"), lambda: client.watch("/", 1), lambda: watch.next(SOON)):
        with pytest.raises(CoordinationUnavailable):
            call()


class TestPasswords:
    @pytest.fixture
    def guarded(self, own_etcd: EtcdServer) -> EtcdServer:
        with grpc.insecure_channel(own_etcd.endpoint) as channel:
            auth = rpc.AuthStub(channel)
            auth.UserAdd(rpc.AuthUserAddRequest(name="root", password="secret"))
            auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"))
            auth.UserAdd(rpc.AuthUserAddRequest(name="nobody", password="secret"))
            auth.AuthEnable(rpc.AuthEnableRequest())
        return own_etcd

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        (tmp_path / "password").write_text("secret\n")
        return tmp_path / "password"

    def test_the_right_password_opens(self, guarded: EtcdServer, secret: Path) -> None:
        with EtcdClient(EtcdConfig(endpoints=(guarded.endpoint,), user="root", password_file=secret)) as client:
            rev = client.txn([], [Put("/a", b"1")]).revision
            assert next_revision(client.watch("/", rev)) == rev
            lease = client.grant(SOON)
            assert client.keep_alive(lease.id, SOON) == SOON

    def test_a_new_password_is_read_from_its_file(self, guarded: EtcdServer, secret: Path) -> None:
        with EtcdClient(EtcdConfig(endpoints=(guarded.endpoint,), user="root", password_file=secret)) as client:
            client.get("/a")
            _change_password(guarded, "root", "secret", "another secret")
            with pytest.raises(CoordinationRefused):
                client.get("/a")
            secret.write_text("another secret")
            assert client.get("/a") is None

    def test_a_token_that_is_no_longer_valid_is_replaced(self, guarded: EtcdServer, secret: Path) -> None:
        """A restart of etcd invalidates all tokens, because etcd keeps them in memory."""
        with (
            EtcdClient(EtcdConfig(endpoints=(guarded.endpoint,), user="root", password_file=secret)) as client,
            EtcdClient(EtcdConfig(endpoints=(guarded.endpoint,), user="root", password_file=secret)) as watcher,
        ):
            rev = client.txn([], [Put("/a", b"1")]).revision
            watcher.range("/")
            guarded.kill()
            guarded.start()

            def opened() -> bool:
                try:
                    return next_revision(watcher.watch("/", rev)) == rev
                except CoordinationUnavailable:
                    return False

            until(opened)
            assert client.txn([], [Put("/a", b"2")]).revision == rev + 1

    @pytest.mark.parametrize(("user", "password"), [(None, None), ("root", "wrong"), ("nobody", "secret")])
    def test_others_are_refused(
        self, guarded: EtcdServer, secret: Path, user: str | None, password: str | None
    ) -> None:
        secret.write_text(password or "")
        with EtcdClient(EtcdConfig(endpoints=(guarded.endpoint,), user=user, password_file=secret)) as client:
            for call in (
                lambda: client.get("/a"),
                lambda: client.txn([], [Put("/a", b"")]),
                lambda: client.watch("/", 1),
            ):
                with pytest.raises(CoordinationRefused):
                    call()


def _self_signed(cert: Path, key: Path) -> None:
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))
    words = ("req", "-x509", *new_key, "-out", str(cert), "-days", "2", "-subj", "/CN=stranger")
    subprocess.run(
        ["openssl", *words], env={**os.environ, "OPENSSL_CONF": "/dev/null"}, check=True, capture_output=True
    )


def _change_password(etcd: EtcdServer, user: str, old: str, new: str) -> None:
    with grpc.insecure_channel(etcd.endpoint) as channel:
        auth = rpc.AuthStub(channel)
        token = auth.Authenticate(rpc.AuthenticateRequest(name=user, password=old)).token
        request = rpc.AuthUserChangePasswordRequest(name=user, password=new)
        auth.UserChangePassword(request, metadata=(("token", token),))


class TlsEtcd(EtcdServer):
    """Serves TLS, asks for client certificates, and serves its health check without TLS."""

    def __init__(self, directory: Path, log: Path, pki: Path) -> None:
        super().__init__(directory, log)
        self._pki = pki
        self._health_port = free_port()

    def command(self) -> list[str]:
        tls = f"https://{self.endpoint}"
        plain = f"http://{self.endpoint}"
        command = [tls if word == plain else word for word in super().command()]
        files = [
            *("--cert-file", str(self._pki / "server.crt"), "--key-file", str(self._pki / "server.key")),
            *("--trusted-ca-file", str(self._pki / "ca.crt"), "--client-cert-auth"),
        ]
        return [*command, *files, "--listen-metrics-urls", f"http://127.0.0.1:{self._health_port}"]

    def ready(self) -> bool:
        port, self.port = self.port, self._health_port
        try:
            return super().ready()
        finally:
            self.port = port


class TestTls:
    @pytest.fixture
    def pki(self, tmp_path: Path) -> Path:
        def openssl(*words: str) -> None:
            environment = {**os.environ, "OPENSSL_CONF": "/dev/null"}
            subprocess.run(["openssl", *words], cwd=tmp_path, env=environment, check=True, capture_output=True)

        new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=ca")
        (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1")
        for name in ("server", "client"):
            openssl("req", *new_key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            signed_by_ca = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "san")
            openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed_by_ca)
        return tmp_path

    @pytest.fixture
    def etcd(self, tmp_path: Path, pki: Path) -> Iterator[TlsEtcd]:
        with TlsEtcd(tmp_path / "data", tmp_path / "etcd.log", pki) as etcd:
            yield etcd

    def test_certificates_open(self, etcd: TlsEtcd, pki: Path) -> None:
        tls = Tls(ca=pki / "ca.crt", cert=pki / "client.crt", key=pki / "client.key")
        with EtcdClient(EtcdConfig(endpoints=(etcd.endpoint,), tls=tls)) as client:
            rev = client.txn([], [Put("/a", b"1")]).revision
            assert next_revision(client.watch("/", rev)) == rev

    def test_a_new_certificate_is_read_from_its_files(self, etcd: TlsEtcd, pki: Path) -> None:
        mine = Tls(ca=pki / "ca.crt", cert=pki / "mine.crt", key=pki / "mine.key")
        _self_signed(pki / "mine.crt", pki / "mine.key")
        with EtcdClient(EtcdConfig(endpoints=(etcd.endpoint,), tls=mine, timeout=QUICK)) as client:
            with pytest.raises(CoordinationUnavailable):
                client.get("/a")
            for kind in ("crt", "key"):
                (pki / f"mine.{kind}").write_bytes((pki / f"client.{kind}").read_bytes())

            def answered() -> bool:
                try:
                    return client.get("/a") is None
                except CoordinationUnavailable:
                    return False

            until(answered)

    def test_without_a_client_certificate_nothing_is_answered(self, etcd: TlsEtcd, pki: Path) -> None:
        with (
            EtcdClient(EtcdConfig(endpoints=(etcd.endpoint,), tls=Tls(ca=pki / "ca.crt"), timeout=QUICK)) as client,
            pytest.raises(CoordinationUnavailable),
        ):
            client.get("/a")
