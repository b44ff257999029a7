"""The manifests that helm renders from the chart, for values as users write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from changefeed.config.configuration import Configuration, DdlOptions, PipelineOptions
from changefeed.config.options import Options
from changefeed.config.sinks.sink_traits import SINKS
from changefeed.config.sync_options import SyncPointOptions
from changefeed.config.tables.column_rules import ColumnRule
from changefeed.config.tables.filter import EventRule, Filter, IgnoreWhere
from changefeed.config.tables.routes import Route
from changefeed.errors import ConfigurationError
from changefeed.event import SHOWN_BY_STREAMS, RowType
from node.configuration import NodeConfiguration
from tests.deployment.helm import CHART, Chart, Manifest, Refused
from tests.deployment.kubernetes import VERSIONS, Api
from tests.deployment.values import BAD, GOOD, POD_EXECUTORS, PRODUCTION, STANDALONE, Values

_PROCESSORS = "trial-sluice-processor"

each_good = pytest.mark.parametrize("values", GOOD.values(), ids=GOOD.keys())


@each_good
def test_lint_finds_nothing(chart: Chart, values: Values) -> None:
    told = chart.lint(values)
    assert "0 chart(s) failed" in told
    assert "WARNING" not in told
    assert "ERROR" not in told


@pytest.mark.parametrize("version", VERSIONS)
@each_good
def test_each_object_is_one_that_kubernetes_takes(chart: Chart, values: Values, version: str) -> None:
    api = Api(version)
    manifests = [*chart.render(values, version), *_executor_pods(chart.render(values, version))]
    assert [problem for manifest in manifests for problem in api.problems(manifest)] == []


@each_good
def test_what_an_object_refers_to_is_there(chart: Chart, values: Values) -> None:
    manifests = chart.render(values)
    given = set(_texts(values)) | {"replication-owner"}
    made = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    for owner, pod in _pods(manifests):
        for volume in pod.get("volumes", ()):
            if "secret" in volume:
                name = volume["secret"]["secretName"]
                assert ("Secret", name) in made or name in given, f"{owner}: Secret {name}"
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in made, f"{owner}: {volume}"
        for container in pod["containers"]:
            volumes = {volume["name"] for volume in pod.get("volumes", ())} | _claims(manifests, owner)
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, owner
        account = pod.get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in made or account in given, f"{owner}: {account}"


@each_good
def test_selectors_find_pods_and_their_ports(chart: Chart, values: Values) -> None:
    manifests = chart.render(values)
    pods = [
        (each["spec"]["template"]["metadata"]["labels"], each["spec"]["template"]["spec"])
        for each in manifests
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    for service in (each for each in manifests if each["kind"] == "Service"):
        wanted = service["spec"]["selector"].items()
        found = [pod for labels, pod in pods if wanted <= labels.items()]
        assert found, service["metadata"]["name"]
        for pod in found:
            ports = {port["name"] for container in pod["containers"] for port in container["ports"]}
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for each in manifests:
        if each["kind"] in ("Deployment", "StatefulSet"):
            assert (
                each["spec"]["selector"]["matchLabels"].items()
                <= each["spec"]["template"]["metadata"]["labels"].items()
            )


@each_good
def test_no_image_is_unpinned(chart: Chart, values: Values) -> None:
    manifests = chart.render(values)
    images = [c["image"] for _, pod in _pods(manifests) for c in pod["containers"]]
    for image in images:
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        assert any(letter.isdigit() for letter in tag), image
        assert tag != "latest"


@each_good
def test_containers_can_do_little(chart: Chart, values: Values) -> None:
    for owner, pod in _pods(chart.render(values)):
        assert pod["securityContext"]["runAsNonRoot"], owner
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, owner
        assert pod.get("automountServiceAccountToken") is (
            "processor" in owner and values.get("spark", {}).get("master") == "kubernetes"
        ), owner
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"], owner
            assert not container["securityContext"]["allowPrivilegeEscalation"], owner
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, owner
            assert "resources" in container or "executor" in owner


@each_good
def test_nodes_understand_their_configuration(
    chart: Chart, values: Values, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The configuration names files of the cluster's Secrets; here one file replaces them all."""
    some_file = tmp_path_factory.mktemp("secret") / "file"
    some_file.touch()
    configuration = _configuration(chart.render(values))
    for role in ("owner", "processor"):
        text = configuration[f"{role}.yaml"]
        for path in (word for word in text.split() if word.startswith("/run/secrets/")):
            text = text.replace(path, str(some_file))
        node = NodeConfiguration.of(
            text, {"name": "replication-processor-0", "admin": {"advertise": "node.example:8300"}}
        )
        assert [str(each) for each in node.roles] == [role]


@each_good
def test_a_stopping_pod_has_time_to_hand_its_tables_over(chart: Chart, values: Values) -> None:
    manifests = chart.render(values)
    grace = yaml.safe_load(_configuration(manifests)["processor.yaml"])["grace"]
    for _, pod in _nodes(manifests):
        assert pod["terminationGracePeriodSeconds"] >= grace + 15


def test_executors_have_the_secrets_where_nodes_have_them(chart: Chart) -> None:
    manifests = chart.render(GOOD["secured etcd"] | {"credentials": {"existingSecret": "mongodb"}})
    [executor] = _executor_pods(manifests)
    paths = {mount["mountPath"] for mount in executor["spec"]["containers"][0]["volumeMounts"]}
    for _, pod in _nodes(manifests):
        shared = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if "admin" not in mount["name"]}
        assert shared - {"/etc/sluice"} <= paths
    assert {"/run/secrets/sluice", "/run/secrets/etcd-tls", "/run/secrets/etcd-auth"} <= paths


def test_all_who_write_to_a_bucket_have_the_rights_of_the_platform(chart: Chart) -> None:
    values = GOOD["keys of the platform"]
    accounts = [each["metadata"] for each in chart.render(values) if each["kind"] == "ServiceAccount"]
    assert {each["name"]: each.get("annotations") for each in accounts} == dict.fromkeys(
        ("trial-sluice-owner", "trial-sluice-processor", "trial-sluice-executor"),
        values["serviceAccount"]["annotations"],
    )


def test_changefeeds_may_read_their_credentials_and_no_other_secret(chart: Chart) -> None:
    values = GOOD["changefeeds"]
    configuration = _configuration(chart.render(values))
    for role in ("owner", "processor"):
        allowed = yaml.safe_load(configuration[f"{role}.yaml"])["secret_directories"]
        assert allowed == ["/run/secrets/sluice"]
    named = re.findall(r"\$\{file:(.*?)/[^/]*\}", json.dumps(values))
    assert named
    assert set(named) == set(allowed)
    more = values["credentials"] | {"directories": ["/run/secrets/sluice", "/vault/secrets"]}
    configuration = _configuration(chart.render(values | {"credentials": more}))
    assert yaml.safe_load(configuration["owner.yaml"])["secret_directories"] == more["directories"]


def test_by_default_tasks_run_inside_the_processor(chart: Chart) -> None:
    manifests = chart.render(PRODUCTION)
    spark = yaml.safe_load(_configuration(manifests)["processor.yaml"])["spark"]
    assert spark == {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}}
    assert _open_to_executors(manifests) == set()
    [service] = [each for each in manifests if each["metadata"]["name"] == _PROCESSORS and each["kind"] == "Service"]
    assert [port["name"] for port in service["spec"]["ports"]] == ["admin"]


@pytest.mark.parametrize(
    ("values", "master"),
    [
        (POD_EXECUTORS, "k8s://https://kubernetes.default.svc"),
        (STANDALONE, "spark://master-0.spark:7077,master-1.spark:7078"),
    ],
)
def test_executors_find_their_driver(chart: Chart, values: Values, master: str) -> None:
    manifests = chart.render(values)
    options = _spark_options(manifests)
    [service] = [each for each in manifests if each["metadata"]["name"] == _PROCESSORS and each["kind"] == "Service"]
    assert yaml.safe_load(_configuration(manifests)["processor.yaml"])["spark"]["master"] == master
    assert options["spark.driver.host"] == "$(POD_NAME).trial-sluice-processor.data.svc"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]
    ports = {
        int(options[f"spark.{port}"]) for port in ("driver.port", "driver.blockManager.port", "sluice.handOver.port")
    }
    assert _open_to_executors(manifests) == ports
    assert ports <= {port["port"] for port in service["spec"]["ports"]}
    assert options["spark.dynamicAllocation.shuffleTracking.enabled"] == "true"


def test_the_pods_of_executors_belong_to_their_driver_s(chart: Chart) -> None:
    assert _spark_options(chart.render(POD_EXECUTORS))["spark.kubernetes.driver.pod.name"] == "$(POD_NAME)"


def test_on_a_standalone_cluster_a_processor_has_its_share_and_needs_no_right_in_kubernetes(chart: Chart) -> None:
    manifests = chart.render(STANDALONE)
    options = _spark_options(manifests)
    assert int(options["spark.cores.max"]) == 4 * int(options["spark.executor.cores"])
    assert not [name for name in options if "kubernetes" in name]
    assert {"Role", "RoleBinding"}.isdisjoint({each["kind"] for each in manifests})


def test_a_standalone_cluster_elsewhere_is_reached_and_reaches_the_pods(chart: Chart) -> None:
    manifests = chart.render(GOOD["a standalone cluster elsewhere"])
    assert _spark_options(manifests)["spark.driver.host"] == "$(POD_IP)"
    peers = [{"ipBlock": {"cidr": "192.0.2.0/24"}}]
    policy = _policy_of_nodes(manifests)
    assert [rule["from"] for rule in policy["ingress"]][-1] == peers
    assert {"to": peers} in policy["egress"]
    assert {"ports": [{"port": 7077}]} in policy["egress"]


def test_the_charts_own_pods_may_call_the_admin_api_whoever_else_may(chart: Chart) -> None:
    values = GOOD["closed network"]
    rules = _policy_of_nodes(chart.render(values))["ingress"]
    [peers] = [rule["from"] for rule in rules if {"port": "admin"} in rule["ports"]]
    own = {"app.kubernetes.io/name": "sluice", "app.kubernetes.io/instance": "trial"}
    assert peers == [{"podSelector": {"matchLabels": own}}, *values["networkPolicy"]["adminFrom"]]


def test_users_options_of_spark_go_first(chart: Chart) -> None:
    manifests = chart.render(GOOD["own accounts and names"])
    assert yaml.safe_load(_configuration(manifests)["processor.yaml"])["spark"]["conf"]["spark.executor.memory"] == "3g"


def test_changefeeds_of_the_values_are_configurations(chart: Chart) -> None:
    manifests = chart.render(GOOD["changefeeds"])
    files = next(
        each["data"] for each in manifests if each["metadata"]["name"] == "trial-sluice-changefeeds" and "data" in each
    )
    feeds = [Configuration.from_yaml(text) for name, text in files.items() if name.endswith(".yaml")]
    assert {feed.id for feed in feeds} == {"orders-to-dr", "audit", "archive", "topics"}


def test_the_schema_knows_each_key_of_a_changefeed() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    changefeed, filter = schema["$defs"]["changefeed"]["properties"], schema["$defs"]["filter"]["properties"]
    rule = filter["events"]["items"]["properties"]
    known: list[tuple[dict[str, Any], type[Options]]] = [
        (changefeed, Configuration),
        (filter, Filter),
        (rule, EventRule),
        (rule["ignore_where"]["properties"], IgnoreWhere),
        (changefeed["routes"]["items"]["properties"], Route),
        (changefeed["columns"]["items"]["properties"], ColumnRule),
        (changefeed["ddl"]["properties"], DdlOptions),
        (changefeed["sync_points"]["properties"], SyncPointOptions),
        (changefeed["pipeline"]["properties"], PipelineOptions),
    ]
    for properties, options in known:
        assert set(properties) == {field.alias or name for name, field in options.model_fields.items()}, options
    events = {*RowType, *SHOWN_BY_STREAMS}
    assert set(rule["ignore"]["items"]["enum"]) == {event.value for event in events}


def test_the_schema_knows_each_kind_of_sink() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    pattern = schema["$defs"]["changefeed"]["properties"]["sink"]["pattern"]
    assert [scheme for scheme in SINKS if not re.search(pattern, f"{scheme}://x")] == []


@pytest.mark.parametrize(
    "pattern", ["shop", "shop.", ".orders", "!", "a b.c", "admin.users", "!local.x", "shop.system.views"]
)
def test_a_wrong_pattern_is_refused_before_anything_is_installed(chart: Chart, pattern: str) -> None:
    """`helm template`, `lint` and `upgrade` read the same schema."""
    changefeed = {"id": "a", "source": "mongodb://a", "sink": "mongodb://b", "filter": {"tables": [pattern]}}
    with pytest.raises(ConfigurationError):
        Configuration.parse(changefeed)
    for command in (chart.render, chart.lint):
        with pytest.raises(Refused, match="tables/0"):
            command({**PRODUCTION, "changefeeds": [changefeed]})


def test_the_job_looks_at_each_changefeed_and_updates_none_unless_it_is_told_to(chart: Chart) -> None:
    files = [f"/changefeeds/{name}.yaml" for name in ("orders-to-dr", "audit", "archive", "topics")]
    assert _commands(chart.render(GOOD["changefeeds"])) == [["sluice", "changefeed", "ensure", *files]]
    updating = {**GOOD["changefeeds"], "changefeedJob": {"update": True}}
    assert _commands(chart.render(updating)) == [["sluice", "changefeed", "ensure", "--update", *files]]


def test_what_the_job_reports_can_be_read_until_it_runs_again(chart: Chart) -> None:
    [job] = [each["metadata"] for each in chart.render(GOOD["changefeeds"]) if each["kind"] == "Job"]
    assert job["annotations"]["helm.sh/hook-delete-policy"] == "before-hook-creation"


def test_a_release_removes_only_changefeeds_that_carry_its_name(chart: Chart) -> None:
    manifests = chart.render(GOOD["managed"])
    [command] = _commands(manifests)
    assert command[:5] == ["sluice", "changefeed", "ensure", "--update", "--prune=data.trial"]
    [files] = [each["data"] for each in manifests if "orders-to-dr.yaml" in each.get("data", {})]
    assert {Configuration.from_yaml(text).managed_by for text in files.values()} == {"data.trial"}


def test_nodes_have_what_a_platform_adds(chart: Chart) -> None:
    manifests = chart.render(GOOD["with parts of their own"])
    for owner, pod in _nodes(manifests):
        assert set(pod["securityContext"]) == {"runAsNonRoot", "seccompProfile"}, owner
        assert [each["name"] for each in pod["containers"]] == ["sluice", "vault"]
        assert [each["name"] for each in pod["initContainers"]] == ["waits"]
        assert {"name": "tmp", "emptyDir": {"sizeLimit": "8Gi"}} in pod["volumes"]
    for _, pod in [*_nodes(manifests), ("executor", _executor_pods(manifests)[0]["spec"])]:
        assert {"name": "kerberos", "mountPath": "/etc/krb5"} in pod["containers"][0]["volumeMounts"]
    assert all(each["metadata"]["labels"]["team"] == "data" for each in manifests)
    [ingress] = [each for each in manifests if each["kind"] == "Ingress"]
    assert ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] == "trial-sluice-admin"
    [route] = [each["spec"] for each in manifests if each["kind"] == "GRPCRoute"]
    assert route["parentRefs"] == [{"name": "public", "namespace": "gateways", "sectionName": "grpc"}]
    assert (route["hostnames"], route["rules"]) == (
        ["sluice-admin.example"],
        [{"backendRefs": [{"name": "trial-sluice-admin", "port": 8300}]}],
    )


def test_pods_are_rolled_when_their_configuration_changes(chart: Chart) -> None:
    before, after = chart.render(PRODUCTION), chart.render(PRODUCTION | {"grace": 90})
    assert _checksums(before).isdisjoint(_checksums(after))


def test_without_spark_on_kubernetes_nobody_may_start_pods(chart: Chart) -> None:
    kinds = {each["kind"] for each in chart.render(GOOD["trial"])}
    assert {"Role", "RoleBinding"}.isdisjoint(kinds)


def test_notes_say_what_to_do_next(chart: Chart) -> None:
    assert "sluice changefeed create -" in chart.notes(PRODUCTION)
    trial = chart.notes(GOOD["trial"])
    assert "WARNING: the bundled etcd is one member that loses its data with its pod" in trial
    assert "WARNING: the admin API requires no authentication" in trial
    assert "orders-to-dr" in trial


@pytest.mark.parametrize(("values", "message"), BAD.values(), ids=BAD.keys())
def test_wrong_values_are_refused_in_words(chart: Chart, values: Values, message: str) -> None:
    with pytest.raises(Refused) as refused:
        chart.render(values)
    assert message in str(refused.value)


def _commands(manifests: list[Manifest]) -> list[list[str]]:
    """Of the job that creates changefeeds, after tini."""
    jobs = [each for each in manifests if each["kind"] == "Job" and each["metadata"]["name"].endswith("-changefeeds")]
    containers = [each for job in jobs for each in job["spec"]["template"]["spec"]["containers"]]
    return [container["command"][2:] for container in containers]


def _spark_options(manifests: list[Manifest]) -> dict[str, str]:
    """From the processors' configuration and their flags, which go first."""
    [(_, pod)] = [each for each in _nodes(manifests) if "processor" in each[0]]
    arguments = pod["containers"][0]["args"]
    flags = dict(word.removeprefix("--spark-conf=").split("=", 1) for word in arguments if "spark-conf" in word)
    return {**yaml.safe_load(_configuration(manifests)["processor.yaml"])["spark"]["conf"], **flags}


def _policy_of_nodes(manifests: list[Manifest]) -> Manifest:
    [spec] = [
        each["spec"]
        for each in manifests
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"].endswith("-nodes")
    ]
    return dict(spec)


def _open_to_executors(manifests: list[Manifest]) -> set[int]:
    """The processors' ports that are given by number; those of all nodes have names."""
    ports = [port["port"] for rule in _policy_of_nodes(manifests)["ingress"] for port in rule["ports"]]
    return {port for port in ports if isinstance(port, int)}


def _nodes(manifests: list[Manifest]) -> list[tuple[str, Manifest]]:
    return [each for each in _pods(manifests) if each[0].endswith(("-owner", "-processor"))]


def _pods(manifests: list[Manifest]) -> list[tuple[str, Manifest]]:
    """Each pod: the name of its object, and its spec."""
    direct = [(each["metadata"]["name"], each["spec"]) for each in manifests if each["kind"] == "Pod"]
    templates = [
        (each["metadata"]["name"], each["spec"]["template"]["spec"])
        for each in manifests
        if "template" in each.get("spec", {})
    ]
    return direct + templates + [("executor", pod["spec"]) for pod in _executor_pods(manifests)]


def _executor_pods(manifests: list[Manifest]) -> list[Manifest]:
    text = _configuration(manifests).get("executor.yaml")
    return [yaml.safe_load(text)] if text else []


def _configuration(manifests: list[Manifest]) -> dict[str, str]:
    return next(each["data"] for each in manifests if each["kind"] == "ConfigMap" and "owner.yaml" in each["data"])


def _claims(manifests: list[Manifest], name: str) -> set[str]:
    return {
        claim["metadata"]["name"]
        for each in manifests
        if each["metadata"]["name"] == name
        for claim in each.get("spec", {}).get("volumeClaimTemplates", ())
    }


def _checksums(manifests: list[Manifest]) -> set[str]:
    annotated = [
        each["spec"]["template"]["metadata"].get("annotations", {})
        for each in manifests
        if each["kind"] in ("Deployment", "StatefulSet")
    ]
    return {each["checksum/configuration"] for each in annotated if each}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
