"""Whether a Kubernetes API server would accept a manifest: types, unknown and missing fields, by the schemas in `schemas/`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Schema = dict[str, Any]

VERSIONS = ("1.33", "1.36")
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_ANY_FORM = {_QUANTITY, "io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


class Api:
    """The kinds of a cluster of one Kubernetes version with the Prometheus operator and the Gateway API."""

    def __init__(self, version: str) -> None:
        files = [
            Path(__file__).parent / "schemas" / f"{name}.json"
            for name in (f"kubernetes-{version}", "prometheus-operator", "gateway-api")
        ]
        read = [json.loads(file.read_text()) for file in files]
        self._kinds: dict[str, str] = {kind: name for each in read for kind, name in each["kinds"].items()}
        self._definitions: dict[str, Schema] = {
            name: schema for each in read for name, schema in each["definitions"].items()
        }

    def problems(self, manifest: dict[str, Any]) -> list[str]:
        kind = f"{manifest.get('apiVersion')}/{manifest.get('kind')}"
        if kind not in self._kinds:
            return [f"unknown kind {kind}"]
        return list(self._problems(manifest, {"$ref": self._kinds[kind]}, manifest["kind"]))

    def _problems(self, value: Any, schema: Schema, path: str) -> Iterator[str]:
        if value is None:
            return  # the API server accepts null for an absent field
        if "$ref" in schema:
            if schema["$ref"] in _ANY_FORM:
                yield from _scalar(value, path, quantity=schema["$ref"] == _QUANTITY)
                return
            schema = self._definitions[schema["$ref"]]
        if schema.get("x-kubernetes-int-or-string"):
            yield from _scalar(value, path, quantity=False)
            return
        mistakes = list(_mistakes(value, schema, path))
        if mistakes:
            yield from mistakes
            return
        if isinstance(value, dict):
            yield from self._fields(value, schema, path)
        if isinstance(value, list):
            for number, item in enumerate(value):
                yield from self._problems(item, schema["items"], f"{path}[{number}]")

    def _fields(self, value: dict[str, Any], schema: Schema, path: str) -> Iterator[str]:
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name in schema.get("required", ()):
            if value.get(name) is None:
                yield f"{path}.{name}: missing"
        for name, inner in value.items():
            if name in known:
                yield from self._problems(inner, known[name], f"{path}.{name}")
            elif isinstance(others, dict):
                yield from self._problems(inner, others, f"{path}.{name}")
            elif known and not schema.get("x-kubernetes-preserve-unknown-fields"):
                yield f"{path}.{name}: unknown field"


def _scalar(value: Any, path: str, *, quantity: bool) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        yield f"{path}: expected text or a number, found {value!r}"
    elif quantity and not re.fullmatch(r"\d+(\.\d+)?(m|[kKMGTP]i?)?", str(value)):
        yield f"{path}: {value!r} is no quantity"


def _mistakes(value: Any, schema: Schema, path: str) -> Iterator[str]:
    """Mistakes of the value itself, not of its contents."""
    expected = schema.get("type")
    if expected and (not isinstance(value, _TYPES[expected]) or (isinstance(value, bool) and expected != "boolean")):
        yield f"{path}: expected {expected}, found {value!r}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path}: expected one of {schema['enum']}, found {value!r}"
    elif "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: expected {schema['pattern']}, found {value!r}"
