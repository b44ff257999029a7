"""`sluice changefeed`, against a real server, a source and a target."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
from coordination.layout import Layout
from devstack.kafka.broker import KafkaBroker
from devstack.mongodb.server import Client, MongoDB
from devstack.scripted_processor import ScriptedProcessor
from tests.component.node.server_process import Server
from tests.until import until


@pytest.fixture
def flags(database: str, source_uri: str, target_uri: str) -> list[str]:
    return [
        "--id",
        database,
        "--source",
        source_uri,
        "--sink",
        target_uri,
        "--start",
        "now",
        "--tables",
        f"{database}.*",
    ]


def test_a_changefeed_lives_from_create_to_remove(server: Server, flags: list[str], database: str) -> None:
    created = server.sluice("changefeed", "create", *flags)
    first, second = created.stdout.splitlines()
    assert (first, created.returncode) == (f"changefeed {database} created", 0), created.stderr
    assert second.startswith("capture: ")
    listed = json.loads(server.sluice("changefeed", "list", "-o", "json").stdout)
    assert [(each["state"], each["desired"]) for each in listed if each["id"] == database] == [("normal", "running")]
    assert server.sluice("changefeed", "pause", database).stdout == f"changefeed {database} paused\n"
    queried = yaml.safe_load(server.sluice("changefeed", "query", database, "-o", "yaml").stdout)
    assert (queried["state"], queried["obeyed"], queried["version"]) == ("stopped", True, 2)
    assert server.sluice("changefeed", "resume", database).returncode == 0
    assert server.sluice("changefeed", "remove", database, "--yes").stdout == f"changefeed {database} removed\n"
    gone = server.sluice("changefeed", "query", database)
    assert gone.returncode == 3
    assert f"there is no changefeed '{database}'" in gone.stderr


def test_of_several_ids_an_unknown_one_leaves_all_as_they_are(server: Server, flags: list[str], database: str) -> None:
    server.sluice("changefeed", "create", *flags)
    refused = server.sluice("changefeed", "pause", database, "nope")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert server.sluice("changefeed", "query", database, "-o", "json").stdout.count('"desired": "running"') == 1
    server.sluice("changefeed", "pause", database)
    assert server.sluice("changefeed", "resume", database, "nope").returncode == 3
    assert server.sluice("changefeed", "query", database, "-o", "json").stdout.count('"desired": "paused"') == 1
    server.sluice("changefeed", "remove", database, "--yes")


def test_what_is_not_live_is_updated_with_a_paused_changefeed_alone(
    server: Server, flags: list[str], database: str, tmp_path: Path
) -> None:
    server.sluice("changefeed", "create", *flags)
    file = tmp_path / "feed.yaml"
    feed = {"id": database, "source": flags[3], "sink": flags[5], "start": "now"}
    file.write_text(yaml.safe_dump(feed | {"on_divergence": "fail"}))
    running = server.sluice("changefeed", "update", database, str(file), "--yes")
    assert (running.returncode, "pause it first" in running.stderr) == (1, True)
    server.sluice("changefeed", "pause", database)
    file.write_text(yaml.safe_dump(feed | {"filter": {"tables": [f"{database}.*", f"!{database}.tmp"]}}))
    updated = server.sluice("changefeed", "update", database, "-f", str(file), "--version", "2", "--yes")
    shown, done = updated.stdout.splitlines()
    assert shown == f"filter.tables: {database}.* -> {database}.*, !{database}.tmp"
    assert done == f"changefeed {database} updated to version 3; resume it to continue", updated.stderr
    stale = server.sluice("changefeed", "update", database, str(file), "--version", "2", "--yes")
    assert (stale.returncode, "another user changed it" in stale.stderr) == (4, True)
    queried = json.loads(server.sluice("changefeed", "query", database, "-o", "json").stdout)
    assert queried["configuration"]["filter"]["tables"] == [f"{database}.*", f"!{database}.tmp"]
    server.sluice("changefeed", "remove", database, "--yes")


def test_create_reads_standard_input_and_refuses_a_second_of_the_name(
    server: Server, flags: list[str], database: str
) -> None:
    text = yaml.safe_dump({"id": database, "source": flags[3], "sink": flags[5], "start": "now"})
    text += f"filter: {{tables: ['{database}.*']}}\n"
    assert server.sluice("changefeed", "create", "-", input=text).returncode == 0
    again = server.sluice("changefeed", "create", "-", input=text)
    assert (again.returncode, "exists already" in again.stderr) == (4, True)
    server.sluice("changefeed", "remove", database, "--yes")


def test_validate_tells_all_problems_at_once(
    server: Server, flags: list[str], database: str, source_client: Client, source_uri: str
) -> None:
    source_client[database]["orders"].insert_one({"_id": 1})
    source_client[database]["orders"].create_index("number", unique=True)
    source_client[database]["items"].insert_one({"_id": 1})
    server.sluice("changefeed", "create", *flags)
    fields = {
        "id": f"{database}-too",
        "source": source_uri,
        "sink": flags[5],
        "start": "1000000000.1",
        "filter": {"tables": [f"{database}.*"]},
        "pipeline": {"pre_images": [f"{database}.*"]},
    }
    refused = server.sluice("changefeed", "validate", "-", input=yaml.safe_dump(fields))
    assert refused.returncode == 1
    heading, *problems = [line for line in refused.stderr.splitlines() if not line.startswith("sluice: warning:")]
    assert heading == "sluice: 3 problems:"
    assert "start: 1000000000.1 (2001-09-09T01:46:40Z) is no longer in the source's oplog" in problems[0]
    assert f"pipeline.pre_images: {database}.orders has no pre-images" in problems[1]
    assert (
        f"routes: changefeed '{database}' writes {database}.items, {database}.orders of this target too" in problems[2]
    )
    server.sluice("changefeed", "remove", database, "--yes")


def test_a_changefeed_that_would_write_what_another_one_would_is_refused_before_a_table_exists(
    server: Server, flags: list[str], database: str, source_uri: str
) -> None:
    assert server.sluice("changefeed", "create", *flags).returncode == 0
    again = ["--id", f"{database}-too", "--source", source_uri, "--sink", flags[5], "--start", "now"]
    refused = server.sluice("changefeed", "create", *again, "--tables", f"{database}.*")
    assert refused.returncode == 1
    assert (
        f"changefeed '{database}' would write a table such as {database}.example of this target too" in refused.stderr
    )
    assert (
        "give one of the two changefeeds other tables (filter.tables) or other target names (routes)" in refused.stderr
    )
    server.sluice("changefeed", "remove", database, "--yes")


def test_changefeeds_into_one_kafka_are_refused_where_their_topics_can_meet(
    server: Server, database: str, source_uri: str, kafka: KafkaBroker
) -> None:
    def create(id: str, sink: str) -> str:
        flags = ["--id", id, "--source", source_uri, "--sink", sink, "--tables", f"{database}.*", "--start", "now"]
        return server.sluice("changefeed", "create", *flags).stderr

    first, second = database, f"{database}-too"
    prefix, port = f"test-{database}", kafka.port
    assert "problem" not in create(first, f"kafka://127.0.0.1:{port}/{prefix}")
    refused = create(second, f"kafka://localhost:{port}/{prefix}.eu")
    assert f"changefeed '{first}' writes into this Kafka, too, and a topic such as {prefix}.eu.feed would be" in refused
    assert "problem" not in create(second, f"kafka://localhost:{port}/{prefix}-eu")
    for id in (first, second):
        server.sluice("changefeed", "remove", id, "--yes")


def test_changefeeds_with_files_are_refused_in_one_place(
    server: Server, database: str, source_uri: str, tmp_path: Path
) -> None:
    def create(id: str, folder: Path) -> str:
        flags = ["--id", id, "--source", source_uri, "--sink", f"file://{folder}", "--start", "now"]
        return server.sluice("changefeed", "create", *flags, "--tables", f"{database}.*").stderr

    first, second = database, f"{database}-too"
    assert "problem" not in create(first, tmp_path / "a")
    assert f"changefeed '{first}' has files in " in create(second, tmp_path / "a" / "b")
    assert "problem" not in create(second, tmp_path / "b")
    for id in (first, second):
        server.sluice("changefeed", "remove", id, "--yes")


def test_a_start_without_a_copy_warns_of_tables_that_the_target_lacks(
    server: Server, flags: list[str], database: str, source_client: Client, target_client: Client
) -> None:
    for table in ("orders", "items"):
        source_client[database][table].insert_one({"_id": 1})
    target_client[database]["items"].insert_one({"_id": 1})
    for verb, said in (("validate", "no problems"), ("create", f"changefeed {database} created")):
        answer = server.sluice("changefeed", verb, *flags)
        assert (answer.returncode, said in answer.stdout.splitlines()) == (0, True)
        warning = "sluice: warning: start: now copies nothing, and the target has no table for"
        assert answer.stderr.startswith(f"{warning} {database}.orders; their present rows will be missing there.")
    server.sluice("changefeed", "remove", database, "--yes")


def test_a_flag_says_what_becomes_of_documents_that_the_target_has(
    server: Server, flags: list[str], database: str, source_client: Client, target_client: Client
) -> None:
    for client in (source_client, target_client):
        client[database]["orders"].insert_one({"_id": 1})
    copied = [flag if flag != "now" else "initial" for flag in flags]
    refused = server.sluice("changefeed", "validate", *copied)
    assert (refused.returncode, "write on_occupied: drop or keep" in refused.stderr) == (1, True)
    kept = server.sluice("changefeed", "validate", *copied, "--on-occupied", "keep")
    assert (kept.returncode, kept.stdout.splitlines()[-1]) == (0, "no problems")
    assert f"on_occupied: the target has documents in {database}.orders; they stay" in kept.stderr


def test_the_target_is_never_the_source_by_another_name(server: Server, source_uri: str, database: str) -> None:
    other_name = source_uri.replace("127.0.0.1", "localhost")
    fields = ["--id", database, "--source", source_uri, "--sink", other_name, "--tables", f"{database}.*"]
    refused = server.sluice("changefeed", "create", *fields)
    assert refused.returncode == 1
    assert "sink: it is the same deployment as the source" in refused.stderr


def test_a_target_older_than_the_source_is_refused_with_the_reason(
    server: Server, own_mongodb: Callable[..., MongoDB], database: str
) -> None:
    newer, older = own_mongodb("newer", version="6.0.5"), own_mongodb("older", version="5.0.4")
    fields = ["--id", database, "--tables", f"{database}.*"]
    refused = server.sluice("changefeed", "create", "--source", newer.uri, "--sink", older.uri, *fields)
    assert refused.returncode == 1
    assert "sink: it is MongoDB 5.0, older than the source, which is 6.0;" in refused.stderr
    assert "upgrade the target, or name another" in refused.stderr
    upwards = server.sluice("changefeed", "validate", "--source", older.uri, "--sink", newer.uri, *fields)
    assert (upwards.returncode, upwards.stdout.splitlines()[-1]) == (0, "no problems"), upwards.stderr


def test_servers_that_do_not_answer_are_named_both(server: Server) -> None:
    nobody = "mongodb://127.0.0.1:{}/?serverSelectionTimeoutMS=300"
    fields = ["--id", "f", "--source", nobody.format(1), "--sink", nobody.format(2), "--tables", "shop.*"]
    refused = server.sluice("changefeed", "validate", *fields)
    assert refused.returncode == 1
    assert "  - source: " in refused.stderr
    assert "  - sink: " in refused.stderr


def test_finalize_finishes_and_lets_documents_expire_again(
    server: Server, flags: list[str], database: str, source_client: Client, target_client: Client, etcd_endpoint: str
) -> None:
    server.sluice("changefeed", "create", *flags)
    with (
        EtcdClient(EtcdConfig(endpoints=(etcd_endpoint,))) as etcd,
        ScriptedProcessor(etcd, Layout(server.cluster), "p1"),
    ):
        source_client[database]["sessions"].create_index([("at", 1)], expireAfterSeconds=60)
        until(lambda: "at_1" in target_client[database]["sessions"].index_information(), "the index")
        expiry = target_client[database]["sessions"].index_information()["at_1"]["expireAfterSeconds"]
        finished = server.sluice("changefeed", "finalize", database, "--yes")
    assert expiry >= 50 * 365 * 86_400
    assert finished.returncode == 0, finished.stderr
    assert "expiries restored downstream: 1" in finished.stdout
    assert target_client[database]["sessions"].index_information()["at_1"]["expireAfterSeconds"] == 60
    again = server.sluice("changefeed", "finalize", database, "--yes")
    assert (again.returncode, "expiries restored downstream: 1" in again.stdout) == (0, True)
    resumed = server.sluice("changefeed", "resume", database)
    assert (resumed.returncode, "has reached its target" in resumed.stderr) == (1, True)
    server.sluice("changefeed", "remove", database, "--yes")


def test_nothing_shows_a_password(server: Server, flags: list[str], database: str) -> None:
    flags[3] = flags[3].replace("mongodb://", "mongodb://${env:SLUICE_NOBODY}:${env:SLUICE_NOBODY}@")
    refused = server.sluice("changefeed", "create", *flags)
    assert refused.returncode == 1
    assert "the environment variable SLUICE_NOBODY is not set on this node" in refused.stderr
    hidden = [*flags[:3], "mongodb://root:hunter2hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=200", *flags[4:]]
    shown = server.sluice("changefeed", "validate", *hidden)
    assert shown.returncode == 1
    assert "hunter2" not in shown.stderr + shown.stdout + server.log


def test_tables_and_ddl_of_an_empty_changefeed_say_so(server: Server, flags: list[str], database: str) -> None:
    server.sluice("changefeed", "create", *flags)
    assert server.sluice("table", "list", database).stdout == f"changefeed {database} has no tables yet\n"
    assert server.sluice("ddl", "list", database, "-o", "json").stdout == "[]\n"
    server.sluice("changefeed", "remove", database, "--yes")


def test_nodes_are_listed_for_people_without_colours_in_a_pipe(server: Server) -> None:
    listed = server.sluice("node", "list")
    heading, node = listed.stdout.splitlines()
    titles = ["ID", "OWNER", "TABLES", "LAG", "DRAINING", "SPARK", "ETCD", "SOURCE", "TARGET", "NOT READY"]
    titles += ["ROLES", "ADDRESS", "VERSION", "STARTED", "LAST ERROR"]
    assert [title.strip() for title in heading.split("  ") if title] == titles
    assert node.startswith("n1-")
    assert node.index(" owner ") + 1 == heading.index("ROLES")
    assert "\x1b" not in listed.stdout
