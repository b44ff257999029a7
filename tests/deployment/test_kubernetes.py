"""The manifest check finds what an API server refuses; otherwise the chart's tests would prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deployment.kubernetes import VERSIONS, Api

_POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a"}]}}


def _pod(**container: Any) -> dict[str, Any]:
    return _POD | {"spec": {"containers": [{"name": "a"} | container]}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (_POD | {"spec": {}}, "Pod.spec.containers: missing"),
        (_pod(imagePolicy="Always"), "Pod.spec.containers[0].imagePolicy: unknown field"),
        (_pod(args="server"), "Pod.spec.containers[0].args: expected array, found 'server'"),
        (_pod(args=[8300]), "Pod.spec.containers[0].args[0]: expected string, found 8300"),
        (_pod(env=[{"value": "x"}]), "Pod.spec.containers[0].env[0].name: missing"),
        (
            _pod(ports=[{"containerPort": "http"}]),
            "Pod.spec.containers[0].ports[0].containerPort: expected integer, found 'http'",
        ),
        (
            _pod(resources={"limits": {"memory": "2 GiB"}}),
            "Pod.spec.containers[0].resources.limits.memory: '2 GiB' is no quantity",
        ),
        (_POD | {"apiVersion": "v2"}, "unknown kind v2/Pod"),
    ],
)
def test_what_an_api_server_refuses_is_found(version: str, manifest: dict[str, Any], problem: str) -> None:
    assert Api(version).problems(manifest) == [problem]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_it_takes_is_taken(version: str) -> None:
    pod = _pod(resources={"limits": {"cpu": 2, "memory": "2Gi"}}, livenessProbe={"httpGet": {"port": "http"}}, env=None)
    assert Api(version).problems(pod) == []
