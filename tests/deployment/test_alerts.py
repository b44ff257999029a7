"""The chart's alerts, evaluated by the real promtool over series as nodes export them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.deployment.go_build import built
from tests.deployment.helm import Chart, Recording
from tests.deployment.values import GOOD

pytestmark = pytest.mark.kubernetes

_HERE = 'namespace="data",service="trial-sluice-metrics"'
_AT = "30m"
_STATES = ("normal", "warning", "pending", "stopped", "failed", "finished", "removed", "unreadable")


@pytest.fixture(scope="session")
def promtool() -> Path:
    return built("github.com/prometheus/prometheus", "github.com/prometheus/prometheus/cmd/promtool", "v0.300.1")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [found] = [each for each in Chart(Recording.read()).render(GOOD["monitored"]) if each["kind"] == "PrometheusRule"]
    path = tmp_path_factory.mktemp("alerts") / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": found["spec"]["groups"]}))
    return path


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    more = "".join(f',{label}="{value}"' for label, value in labels.items())
    return {"series": f'{name}{{{_HERE},pod="o1"{more}}}', "values": values}


def healthy(state: str = "normal", **values: str) -> list[dict[str, str]]:
    """One changefeed at rest for an hour, except for what is given."""
    of_feed = {
        "sluice_lag_seconds": "0x120",
        "sluice_barrier_age_seconds": "0x120",
        "sluice_held_tables": "0x120",
        "sluice_stopped_tables": "0x120",
        "sluice_dead_letters": "0x120",
        "sluice_oplog_left_seconds": "200000x120",
        "sluice_divergences_total": "0x120",
        "sluice_sync_point_age_seconds": "30x120",
        "sluice_sync_point_every_seconds": "60x120",
    }
    of_node = {"sluice_owner": "1x120", "sluice_etcd_writable": "1x120", "sluice_task_slots": "4x120"}
    of_node["sluice_unready_nodes"] = "0x120"
    found = [series(name, values.get(name, given), changefeed="orders") for name, given in of_feed.items()]
    found += [series(name, values.get(name, given)) for name, given in of_node.items()]
    states = {each: "1x120" if each == state else "0x120" for each in _STATES}
    found += [series("sluice_changefeed_state", each, changefeed="orders", state=name) for name, each in states.items()]
    return found


def firing(promtool: Path, rules: Path, *given: dict[str, str]) -> set[str]:
    """The alerts after half an hour. promtool compares with none expected, and names those that it has got."""
    names = [rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
    expected = [{"eval_time": _AT, "alertname": name, "exp_alerts": []} for name in names]
    test = {"interval": "30s", "input_series": list(given), "alert_rule_test": expected}
    path = rules.with_name("test.yaml")
    path.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
    told = done.stdout + done.stderr
    found = set(re.findall(r"alertname: (\w+)", told))
    assert bool(found) == (done.returncode != 0), told
    return found


def test_prometheus_takes_the_rules(promtool: Path, rules: Path) -> None:
    done = subprocess.run([promtool, "check", "rules", rules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_at_rest_nothing_fires(promtool: Path, rules: Path) -> None:
    assert firing(promtool, rules, *healthy()) == set()


@pytest.mark.parametrize(
    ("alert", "state", "values"),
    [
        ("SluiceNoOwner", "normal", {"sluice_owner": "0x120"}),
        ("SluiceEtcdNotWritable", "normal", {"sluice_etcd_writable": "0x120"}),
        ("SluiceNodeNotReady", "normal", {"sluice_unready_nodes": "1x120"}),
        ("SluiceChangefeedFailed", "failed", {}),
        ("SluiceChangefeedUnreadable", "unreadable", {}),
        ("SluiceChangefeedPending", "pending", {}),
        ("SluiceLag", "normal", {"sluice_lag_seconds": "0+30x120"}),
        ("SluiceBarrierClosed", "normal", {"sluice_held_tables": "3x120"}),
        ("SluiceBarrierStale", "normal", {"sluice_barrier_age_seconds": "0+30x120"}),
        ("SluiceSyncPointsLate", "normal", {"sluice_sync_point_age_seconds": "0+30x120"}),
        ("SluiceOplogWindowShrinking", "normal", {"sluice_oplog_left_seconds": "30000x120"}),
        ("SluiceDivergence", "normal", {"sluice_divergences_total": "0x50 1x70"}),
        ("SluiceTablesStopped", "normal", {"sluice_stopped_tables": "2x120"}),
        ("SluiceRejectedRows", "warning", {"sluice_dead_letters": "3x120"}),
    ],
)
def test_an_alert_fires_for_its_cause_alone(
    promtool: Path, rules: Path, alert: str, state: str, values: dict[str, str]
) -> None:
    assert firing(promtool, rules, *healthy(state, **values)) == {alert}


def test_rows_that_are_rejected_long_ago_are_told_as_long_as_they_are(promtool: Path, rules: Path) -> None:
    """The counter of refusals has not moved for half an hour."""
    assert firing(promtool, rules, *healthy("warning", sluice_dead_letters="3x120")) == {"SluiceRejectedRows"}


def test_a_node_without_executors_is_told_only_while_rows_wait(promtool: Path, rules: Path) -> None:
    assert firing(promtool, rules, *healthy(sluice_task_slots="0x120")) == set()
    waiting = healthy(sluice_task_slots="0x120", sluice_lag_seconds="0+30x120")
    assert firing(promtool, rules, *waiting) == {"SluiceNoExecutors", "SluiceLag"}


def test_the_last_hours_of_an_oplog_are_critical(promtool: Path, rules: Path) -> None:
    scarce = healthy(sluice_oplog_left_seconds="100x120")
    assert firing(promtool, rules, *scarce) == {"SluiceOplogWindowShrinking", "SluiceOplogWindowAlmostLost"}
