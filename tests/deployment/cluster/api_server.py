"""`ApiServer`: a real Kubernetes API server over a real etcd. No controller and no kubelet run, so objects are stored and nothing starts."""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import yaml

from devstack.ports import free_port
from devstack.process import START_TIMEOUT_SECONDS, ServerProcess, wait_until
from tests.deployment.go_build import built

VERSION = "v1.36.3"
_USER = "administrator"


class ApiServer(ServerProcess):
    def __init__(self, directory: Path, etcd: str) -> None:
        super().__init__("kube-apiserver", directory, directory / "log")
        self._etcd = etcd
        self._port = free_port()
        self._token = secrets.token_hex(16)
        self._binary = built("k8s.io/kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", VERSION)
        self._tls = ssl._create_unverified_context()

    @property
    def ports(self) -> tuple[int, ...]:
        return (self._port,)

    @property
    def kubeconfig(self) -> Path:
        path = self.directory / "kubeconfig"
        cluster = {"server": f"https://127.0.0.1:{self._port}", "insecure-skip-tls-verify": True}
        context = {"cluster": "here", "user": _USER}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "here", "cluster": cluster}],
                    "users": [{"name": _USER, "user": {"token": self._token}}],
                    "contexts": [{"name": "here", "context": context}],
                    "current-context": "here",
                }
            )
        )
        return path

    def command(self) -> list[str]:
        key, tokens = self.directory / "accounts.key", self.directory / "tokens.csv"
        if not key.exists():
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens.write_text(f"{self._token},{_USER},1,system:masters\n")
        return [
            str(self._binary),
            f"--etcd-servers=http://{self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self.directory / 'certificates'}",
            f"--token-auth-file={tokens}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
        ]

    def ready(self) -> bool:
        try:
            return self._answer("GET", "/readyz") == b"ok"
        except (URLError, OSError):
            return False

    def get(self, path: str) -> dict[str, Any] | None:
        """None if there is no such object."""
        try:
            found: dict[str, Any] = json.loads(self._answer("GET", path))
        except HTTPError as error:
            if error.code == 404:
                return None
            raise
        return found

    def wait_for(self, path: str) -> None:
        found = wait_until(lambda: self.get(path) is not None, START_TIMEOUT_SECONDS)
        assert found, f"{path} did not come within {START_TIMEOUT_SECONDS:g} s"

    def create(self, path: str, manifest: dict[str, Any]) -> None:
        self._answer("POST", path, json.dumps(manifest).encode())

    def _answer(self, verb: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}", data=body, method=verb, headers=headers
        )
        with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
            content: bytes = answer.read()
        return content
