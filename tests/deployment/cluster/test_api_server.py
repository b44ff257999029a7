"""The chart's objects in a real Kubernetes API server: installed, upgraded and rolled back by the real helm."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.etcd.server import EtcdServer
from tests.deployment import helm
from tests.deployment.cluster.api_server import ApiServer
from tests.deployment.helm import Manifest
from tests.deployment.values import GOOD, POD_EXECUTORS, PRODUCTION, STANDALONE, Values

pytestmark = pytest.mark.kubernetes

_CHART = Path(__file__).parents[3] / "helm" / "sluice"
_CORE = {"Namespace", "Pod", "Service", "ServiceAccount", "ConfigMap", "Secret"}
_PLURALS = {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"}
_MONITORING, _GATEWAY = "monitoring.coreos.com", "gateway.networking.k8s.io"
_BITS = {"K": 10, "M": 20, "G": 30}
_CUSTOM = {
    "PodMonitor": _MONITORING,
    "PrometheusRule": _MONITORING,
    "ServiceMonitor": _MONITORING,
    "GRPCRoute": _GATEWAY,
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """With the kinds of the Prometheus operator and of the Gateway API, whatever they contain."""
    directory = tmp_path_factory.mktemp("kubernetes")
    with EtcdServer(directory / "etcd", directory / "etcd.log") as etcd, ApiServer(directory, etcd.endpoint) as server:
        for kind, group in _CUSTOM.items():
            server.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", _definition(kind, group))
        for kind, group in _CUSTOM.items():
            server.wait_for(f"/apis/{group}/v1/{_plural(kind)}")
        yield server


def _definition(kind: str, group: str) -> Manifest:
    plural = _plural(kind)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},  # asked for in groups of k8s.io
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


class Release:
    """A release in a namespace of its own. Hooks are not run: nothing would end their pods."""

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._helm = helm.binary()

    def install(self, values: Values) -> None:
        self._run("install", "trial", str(_CHART), "--create-namespace", "--no-hooks", values=values)

    def upgrade(self, values: Values) -> None:
        self._run("upgrade", "trial", str(_CHART), "--no-hooks", "--reset-values", values=values)

    def rollback(self, revision: int) -> None:
        self._run("rollback", "trial", str(revision), "--no-hooks")

    @property
    def manifests(self) -> list[Manifest]:
        return [each for each in yaml.safe_load_all(self._run("get", "manifest", "trial")) if each]

    @property
    def hooks(self) -> list[Manifest]:
        return [each for each in yaml.safe_load_all(self._run("get", "hooks", "trial")) if each]

    def problems(self) -> list[str]:
        """What the server's objects lack of what was rendered, and objects that were left behind."""
        rendered = self.manifests
        found = [problem for each in rendered for problem in _missing(each, self.stored(each), each["kind"])]
        names = {(each["kind"], each["metadata"]["name"]) for each in rendered}
        return found + [f"{kind} {name} is left" for kind, name in self.labelled() - names]

    def labelled(self) -> set[tuple[str, str]]:
        kinds = ("deployments", "statefulsets", "poddisruptionbudgets", "networkpolicies", "horizontalpodautoscalers")
        groups = ("apps", "apps", "policy", "networking.k8s.io", "autoscaling")
        versions = ("v1", "v1", "v1", "v1", "v2")
        paths = [
            f"/apis/{group}/{version}/namespaces/{self._namespace}/{kind}"
            for group, version, kind in zip(groups, versions, kinds, strict=True)
        ]
        paths += [
            f"/api/v1/namespaces/{self._namespace}/{kind}" for kind in ("services", "configmaps", "serviceaccounts")
        ]
        found = set()
        for path in paths:
            listed = self._api.get(path)
            assert listed is not None
            for each in listed["items"]:
                if each["metadata"].get("labels", {}).get("app.kubernetes.io/instance") == "trial":
                    found.add((listed["kind"].removesuffix("List"), each["metadata"]["name"]))
        return found

    def stored(self, manifest: Manifest) -> Manifest | None:
        return self._api.get(f"{self._path(manifest)}/{manifest['metadata']['name']}")

    def create(self, manifest: Manifest) -> None:
        self._api.create(self._path(manifest), manifest)

    def _path(self, manifest: Manifest) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        return f"{root}/namespaces/{self._namespace}/{_plural(kind)}"

    def _run(self, *arguments: str, values: Values | None = None) -> str:
        options = ["--namespace", self._namespace, "--kubeconfig", str(self._api.kubeconfig)]
        given = ["--values", "-"] if values is not None else []
        done = subprocess.run(
            [self._helm, *arguments, *options, *given],
            input=yaml.safe_dump(values) if values is not None else None,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def _plural(kind: str) -> str:
    return _PLURALS.get(kind, f"{kind.lower()}s")


def _missing(given: Any, stored: Any, path: str) -> Iterator[str]:
    """What was given and is not stored as it was. The server adds defaults, and writes quantities in a form of its own."""
    if isinstance(given, dict) and isinstance(stored, dict):
        for name, value in given.items():
            if value not in (None, {}, []):
                yield from _missing(value, stored.get(name), f"{path}.{name}")
    elif isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        for number, (one, other) in enumerate(zip(given, stored, strict=True)):
            yield from _missing(one, other, f"{path}[{number}]")
    elif _plain(given) != _plain(stored):
        yield f"{path}: given {json.dumps(given)}, stored {json.dumps(stored)}"


def _plain(value: Any) -> str:
    size = re.fullmatch(r"(\d+)([KMG])i", str(value))
    return str(int(size[1]) << _BITS[size[2]]) if size else str(value)


def _namespace(name: str) -> str:
    return name.replace(" ", "-")


@pytest.mark.parametrize(("name", "values"), GOOD.items(), ids=GOOD.keys())
def test_what_is_installed_is_stored_as_it_was_rendered(api: ApiServer, name: str, values: Values) -> None:
    release = Release(api, f"install-{_namespace(name)}")
    release.install(values)
    assert release.problems() == []
    for hook in release.hooks:
        release.create(hook)
        assert list(_missing(hook, release.stored(hook), hook["kind"])) == []


@pytest.mark.parametrize(("name", "values"), GOOD.items(), ids=GOOD.keys())
def test_an_upgrade_is_taken_and_a_rollback_takes_it_back(api: ApiServer, name: str, values: Values) -> None:
    release = Release(api, f"upgrade-{_namespace(name)}")
    release.install(PRODUCTION)
    before = release.manifests
    release.upgrade({**values, "grace": 90})
    assert release.problems() == []
    release.rollback(1)
    assert release.manifests == before
    assert release.problems() == []


def test_a_credential_that_is_taken_out_of_the_values_goes_away(api: ApiServer) -> None:
    release = Release(api, "credentials")
    values = {**GOOD["trial"], "credentials": {"data": {"source": "reader:secret@db1.example", "target": "x"}}}
    release.install(values)
    release.upgrade({**values, "credentials": {"data": {"source": "reader:other@db1.example"}}})
    [secret] = [each for each in release.manifests if each["kind"] == "Secret"]
    stored = release.stored(secret)
    assert stored is not None
    assert {name: b64decode(value) for name, value in stored["data"].items()} == {"source": b"reader:other@db1.example"}


def test_an_upgrade_from_one_place_of_tasks_to_each_other_is_taken(api: ApiServer) -> None:
    release = Release(api, "places")
    places = [PRODUCTION, POD_EXECUTORS, STANDALONE, POD_EXECUTORS, PRODUCTION, STANDALONE, PRODUCTION]
    release.install(places[0])
    for values in places[1:]:
        release.upgrade(values)
        assert release.problems() == []
    for revision in range(1, len(places) + 1):
        release.rollback(revision)
        assert release.problems() == []
