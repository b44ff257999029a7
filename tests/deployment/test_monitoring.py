"""Dashboard and alerts use only metrics that nodes have, and the handbook has each metric, and a remedy for each alert."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from admin import cluster_metrics
from admin.cluster_reader import Changefeeds
from admin.metrics import Metrics
from changefeed.cluster_time import ClusterTime
from changefeed.event import RowTally, RowType
from changefeed.records.copy import CopiedChunk
from changefeed.records.requests import ChangefeedId
from processor.spark.jvm import SparkHealth
from tests.deployment.container_build import ROOT
from tests.deployment.helm import Chart, Manifest
from tests.deployment.values import GOOD

_NAME = re.compile(r"\b(?:sluice|process)_[a-z_]+\b")
_LABELS_OF_SCRAPING = {"namespace", "service", "pod", "le"}
_HEALTH = SparkHealth(executors=1, slots=2, heap_used=1, heap_most=2, jvm_resident=3, workers=1, workers_resident=1)
_SUFFIX = re.compile(r"_(total|bucket|sum|count|created)$")


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Labels of each metric: a node's, read from its registry, and the cluster's, made without any changefeed."""
    node = Metrics()
    tally = RowTally(applied=Counter({RowType.INSERT: 1}), messages=1)
    node.window_done(ChangefeedId("a"), tally, timedelta(1), failed=True)
    node.window_committed(ChangefeedId("a"), timedelta(1))
    node.chunks_copied(
        ChangefeedId("a"), [CopiedChunk(after=ClusterTime(1, 1), until=ClusterTime(1, 1), documents=1, bytes=1)]
    )
    node.describe_process("0", lambda: _HEALTH)
    found = _labels_in(node.registry) | _labels_of(_cluster_metrics())
    return {name: labels for name, labels in found.items() if _NAME.fullmatch(name)}


def test_the_dashboard_shows_what_there_is(chart: Chart, known: dict[str, set[str]]) -> None:
    for expression in _dashboard_expressions(chart):
        _assert_known(expression, known)


def test_the_dashboard_shows_each_metric(chart: Chart, known: dict[str, set[str]]) -> None:
    shown = {name for expression in _dashboard_expressions(chart) for name in _NAME.findall(expression)}
    assert {_SUFFIX.sub("", name) for name in shown} >= {
        _SUFFIX.sub("", name) for name in known if name.startswith("sluice_")
    }


def test_the_handbook_explains_each_metric_and_no_other(known: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    named = {_SUFFIX.sub("", name) for name in re.findall(r"\bsluice_[a-z_]+\b", page)}
    assert named == {_SUFFIX.sub("", name) for name in known if name.startswith("sluice_")}


def test_alerts_watch_what_there_is(chart: Chart, known: dict[str, set[str]]) -> None:
    for rule in _alerts(chart):
        _assert_known(rule["expr"], known)


def test_alerts_cover_what_stops_replication(chart: Chart) -> None:
    names = {rule["alert"] for rule in _alerts(chart)}
    assert {
        "SluiceLag",
        "SluiceBarrierClosed",
        "SluiceOplogWindowShrinking",
        "SluiceChangefeedFailed",
        "SluiceNoOwner",
        "SluiceEtcdNotWritable",
        "SluiceNodeNotReady",
    } <= names


def test_each_alert_has_its_remedy_in_the_handbook(chart: Chart) -> None:
    handbook = _handbook()
    assert {rule["alert"] for rule in _alerts(chart)} == set(
        re.findall(r"^### (Sluice\w+)$", handbook, flags=re.MULTILINE)
    )


def test_each_alert_links_to_its_remedy(chart: Chart) -> None:
    anchors = {heading.lower() for heading in re.findall(r"^### (Sluice\w+)$", _handbook(), flags=re.MULTILINE)}
    for rule in _alerts(chart):
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "https://wiki.example/sluice/operations.html"
        assert anchor in anchors


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ("monitored by pod", 'namespace="data",service="trial-sluice-metrics"'),
        ("scraped by something else", 'namespace="data",job=~"sluice.*"'),
    ],
)
def test_alerts_need_no_service_monitor(chart: Chart, values: str, labels: str) -> None:
    manifests = chart.render(GOOD[values])
    [rules] = [each for each in manifests if each["kind"] == "PrometheusRule"]
    for rule in rules["spec"]["groups"][0]["rules"]:
        assert f"{{{labels}" in rule["expr"]
    endpoints = [each["spec"]["podMetricsEndpoints"] for each in manifests if each["kind"] == "PodMonitor"]
    for [endpoint] in endpoints:
        assert endpoint["relabelings"][0] == {"targetLabel": "service", "replacement": "trial-sluice-metrics"}


def _handbook() -> str:
    return (ROOT / "docs" / "how-to" / "troubles.md").read_text()


def test_alerts_are_those_of_their_release(chart: Chart) -> None:
    for rule in _alerts(chart):
        assert set(re.findall(r"sluice_\w+\{", rule["expr"])) == {f"{name}{{" for name in _NAME.findall(rule["expr"])}
        for labels in re.findall(r"\{(.*?)\}", rule["expr"]):
            assert labels.startswith('namespace="data",service="trial-sluice-metrics"')


def test_panels_lie_side_by_side(chart: Chart) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in chart.panels(GOOD["monitored"]):
        at = panel["gridPos"]
        cells = {(at["x"] + column, at["y"] + line) for column in range(at["w"]) for line in range(at["h"])}
        assert taken.isdisjoint(cells), panel["title"]
        assert all(column < 24 for column, _ in cells), panel["title"]
        taken |= cells


def _dashboard_expressions(chart: Chart) -> list[str]:
    return [target["expr"] for panel in chart.panels(GOOD["monitored"]) for target in panel.get("targets", ())]


def _alerts(chart: Chart) -> list[Manifest]:
    [found] = [each for each in chart.render(GOOD["monitored"]) if each["kind"] == "PrometheusRule"]
    return [rule for group in found["spec"]["groups"] for rule in group["rules"]]


def _assert_known(expression: str, known: dict[str, set[str]]) -> None:
    names = _NAME.findall(expression)
    assert names, expression
    used = {label for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in re.split(r",\s*", labels)}
    used |= {label for labels in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)=~?\"", labels)}
    for name in names:
        assert name in known, f"{name}: no node has it"
    there = set.union(*(known[name] for name in names)) | _LABELS_OF_SCRAPING
    assert used <= there, f"{expression}: {used - there}"


def _cluster_metrics() -> Iterator[Metric]:
    """The metrics that the owner makes from etcd. Their names do not depend on etcd's content."""
    now = datetime.now(UTC)
    yield from cluster_metrics._states(Changefeeds(), None)
    yield cluster_metrics._info({})
    yield from cluster_metrics._gauges({}, now)
    yield from cluster_metrics._lags({}, now)
    yield from cluster_metrics._copies({})
    yield from cluster_metrics._shards({})
    yield cluster_metrics._ddl_seconds({})
    source = (ROOT / "admin" / "cluster_metrics.py").read_text()
    for name in re.findall(r'_by_changefeed\(\s*"(\w+)"', source):
        yield cluster_metrics._by_changefeed(name, "", {})
    for name in re.findall(r'GaugeMetricFamily\(\s*"(\w+)", "[^"]*", \w', source):
        yield Metric(name, "", "gauge")


def _labels_in(registry: CollectorRegistry) -> dict[str, set[str]]:
    samples = [sample for family in registry.collect() for sample in family.samples]
    names = {sample.name for sample in samples}
    return {name: {label for sample in samples if sample.name == name for label in sample.labels} for name in names}


def _labels_of(families: Iterator[Metric]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for family in families:
        for suffix in ("_bucket", "_sum", "_count") if family.type == "histogram" else ("",):
            found.setdefault(f"{family.name}{suffix}", set()).update(getattr(family, "_labelnames", ()))
    return found
