"""Makes `schemas/`: the schemas of the kinds that the chart uses, for two Kubernetes versions, the Prometheus operator and the Gateway API.

    python -m tests.deployment.extract_schemas

reads the schemas from the projects' Go modules (only this script needs `go`) and keeps what decides whether a manifest is valid:
types, fields, required fields, enumerations. All projects are under the Apache License 2.0.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = {"1.33": "v1.33.5", "1.36": "v1.36.3"}
PROMETHEUS_OPERATOR, GATEWAY_API = "v0.85.0", "v1.3.0"
KINDS = {
    "v1/ConfigMap": "core.v1.ConfigMap",
    "v1/Pod": "core.v1.Pod",
    "v1/Secret": "core.v1.Secret",
    "v1/Service": "core.v1.Service",
    "v1/ServiceAccount": "core.v1.ServiceAccount",
    "apps/v1/Deployment": "apps.v1.Deployment",
    "apps/v1/StatefulSet": "apps.v1.StatefulSet",
    "autoscaling/v2/HorizontalPodAutoscaler": "autoscaling.v2.HorizontalPodAutoscaler",
    "batch/v1/Job": "batch.v1.Job",
    "networking.k8s.io/v1/Ingress": "networking.v1.Ingress",
    "networking.k8s.io/v1/NetworkPolicy": "networking.v1.NetworkPolicy",
    "policy/v1/PodDisruptionBudget": "policy.v1.PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1/Role": "rbac.v1.Role",
    "rbac.authorization.k8s.io/v1/RoleBinding": "rbac.v1.RoleBinding",
}
MONITORING = ("podmonitors", "prometheusrules", "servicemonitors")
DECISIVE = ("$ref", "type", "format", "properties", "required", "items", "additionalProperties", "enum", "pattern")
DECISIVE_OF_CUSTOM = (*DECISIVE, "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
SCHEMAS = Path(__file__).parent / "schemas"


def main() -> None:
    for name, version in KUBERNETES.items():
        swagger = json.loads((_module("k8s.io/kubernetes", version) / "api/openapi-spec/swagger.json").read_text())
        definitions = {key.removeprefix("io.k8s.api."): value for key, value in swagger["definitions"].items()}
        used = dict(sorted(_closure(definitions, KINDS.values()).items()))
        _write(f"kubernetes-{name}", {"version": version, "kinds": KINDS, "definitions": used})
    crds = _module("github.com/prometheus-operator/prometheus-operator", PROMETHEUS_OPERATOR)
    files = [crds / f"example/prometheus-operator-crd/monitoring.coreos.com_{plural}.yaml" for plural in MONITORING]
    _write("prometheus-operator", {"version": PROMETHEUS_OPERATOR, **_custom(files)})
    routes = _module("sigs.k8s.io/gateway-api", GATEWAY_API) / "config/crd/standard"
    files = [routes / "gateway.networking.k8s.io_grpcroutes.yaml"]
    _write("gateway-api", {"version": GATEWAY_API, **_custom(files)})


def _module(path: str, version: str) -> Path:
    told = subprocess.run(["go", "mod", "download", "-json", f"{path}@{version}"], check=True, capture_output=True)
    return Path(json.loads(told.stdout)["Dir"])


def _closure(definitions: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The definitions of these names, and those that they refer to."""
    found: dict[str, Any] = {}
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _decisive(definitions[name], DECISIVE)
            wanted += list(_references(found[name]))
    return found


def _custom(files: Iterable[Path]) -> dict[str, Any]:
    kinds, definitions = {}, {}
    for file in files:
        crd = yaml.safe_load(file.read_text())["spec"]
        kind, version = crd["names"]["kind"], crd["versions"][0]
        schema = _decisive(version["schema"]["openAPIV3Schema"], DECISIVE_OF_CUSTOM)
        schema["properties"].pop("status", None)
        kinds[f"{crd['group']}/{version['name']}/{kind}"] = kind
        definitions[kind] = schema
    return {"kinds": kinds, "definitions": definitions}


def _decisive(schema: Any, keys: tuple[str, ...]) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: schema[key] for key in keys if key in schema}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _decisive(kept[key], keys)
    if "properties" in kept:
        kept["properties"] = {name: _decisive(each, keys) for name, each in kept["properties"].items()}
    if "$ref" in kept:
        kept["$ref"] = kept["$ref"].removeprefix("#/definitions/").removeprefix("io.k8s.api.")
    return kept


def _references(schema: Any) -> Iterable[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from _references(value)


def _write(name: str, content: dict[str, Any]) -> None:
    """Writes one definition per line, so that two versions can be compared."""
    head = {key: value for key, value in content.items() if key != "definitions"}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in content["definitions"].items()]
    text = json.dumps(head)[:-1] + ', "definitions": {\n' + ",\n".join(lines) + "\n}}\n"
    json.loads(text)
    (SCHEMAS / f"{name}.json").write_text(text)


if __name__ == "__main__":
    main()
