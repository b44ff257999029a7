"""Output for programs does not depend on which fields are set."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli import cells
from cli.output import Output, plain, print_messages
from cli.tables import Column


def test_an_absent_value_is_null_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    node = pb.Node(id="n1", spark=False)
    print_messages([node], (), Output.JSON, empty="none")
    [found] = json.loads(capsys.readouterr().out)
    assert (found["spark"], found["etcd_writable"], found["last_error"], found["draining"]) == (
        False,
        None,
        None,
        False,
    )


def test_plain_values_name_every_field_and_need_no_protobuf() -> None:
    feed = pb.Changefeed(id="f", configuration="id: f\n", state="CHANGEFEED_STATE_WARNING", tables=3)
    feed.lag.FromTimedelta(timedelta(seconds=1.5))
    shown = plain(feed)
    assert (shown["state"], shown["lag"], shown["tables"]) == ("warning", 1.5, 3)
    assert shown["configuration"] == {"id": "f"}
    assert (shown["error"], shown["checkpoint"], shown["copy"]) == (None, "", None)
    times = {"checkpoint_time", "resolved_time"}
    assert [name for name in shown if name not in times] == [field.name for field in pb.Changefeed.DESCRIPTOR.fields]


def test_a_position_is_exact_and_has_its_time_beside_it() -> None:
    shown = plain(pb.Table(checkpoint="1795224774.9/8264", barrier=""))
    assert (shown["checkpoint"], shown["checkpoint_time"]) == ("1795224774.9/8264", "2026-11-21T01:32:54Z")
    assert (shown["barrier"], shown["barrier_time"]) == ("", None)


def test_a_long_list_in_yaml_has_a_line_for_each_item_and_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    names = [
        "a",
        "yes",
        "1e3",
        "é",
        "\U0001f600",
        "tab\t",
        "two\nlines",
        "\x7f",
        "\x85",
        "\u2028",
        'say "no": # 1, {x}',
        "n" * 2000,
    ]
    tables = [pb.Table(id=f"{n:04x}", name=name) for n, name in enumerate(names * 50)]
    tables[0].lag.FromTimedelta(timedelta(microseconds=50))
    tables[1].copy.SetInParent()
    print_messages(tables, (), Output.YAML, empty="none")
    written = capsys.readouterr().out
    assert yaml.safe_load(written) == [plain(table) for table in tables]
    assert written.count("\n- {") > len(tables) / 2


def test_a_short_list_in_yaml_has_a_line_for_each_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_messages([pb.Table(id="1", name="shop.items", state="held")], (), Output.YAML, empty="none")
    written = capsys.readouterr().out
    assert written.startswith("---\n- id: '1'\n  name: shop.items\n")
    assert "\n  state: held\n" in written


def test_a_pipe_gets_every_column_whole(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [pb.Node(id="n" * 150, version="1"), pb.Node(id="m", version="22")]
    columns = [
        Column("ID", lambda node: node.id),
        Column("VERSION", lambda node: node.version, right=True, optional=True),
    ]
    print_messages(nodes, columns, Output.TABLE, empty="none")
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading == f"{'ID':<150}  VERSION"
    assert first == f"{'n' * 150}  {'1':>7}"
    assert second == f"{'m':<150}  {'22':>7}"


def test_nothing_is_a_sentence_for_people_and_an_empty_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    print_messages([], [], Output.TABLE, empty="no nodes")
    print_messages([], [], Output.JSON, empty="no nodes")
    assert capsys.readouterr().out == "no nodes\n[]\n"


def test_a_state_that_is_asked_for_is_not_shown_as_reached() -> None:
    pausing = pb.Changefeed(state="CHANGEFEED_STATE_NORMAL", desired="DESIRED_STATE_PAUSED", obeyed=False)
    paused = pb.Changefeed(state="CHANGEFEED_STATE_STOPPED", desired="DESIRED_STATE_PAUSED", obeyed=True)
    assert (cells.state(pausing).plain, cells.state(paused).plain) == ("pausing", "stopped")
