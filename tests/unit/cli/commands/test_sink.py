"""`sluice sink list` tells what a configuration may name."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from changefeed.config.sinks.sink_traits import SINKS
from cli.main import app


def test_each_kind_of_sink_is_listed_with_its_options() -> None:
    listed = CliRunner().invoke(app, ["sink", "list", "-o", "json"])
    assert listed.exit_code == 0
    found = {each["uri"].partition("://")[0]: each for each in json.loads(listed.stdout)}
    assert found.keys() == SINKS.keys()
    assert [option["name"] for option in found["file"]["options"]] == [
        "format",
        "compression",
        "commit_interval",
        "file_size",
        "layout",
    ]


def test_people_get_a_line_for_each_option() -> None:
    listed = CliRunner().invoke(app, ["sink", "list"])
    line, _ = [line for line in listed.stdout.splitlines() if "commit_interval" in line]
    assert line.split()[:5] == ["commit_interval", "60s", "1s", "to", "60m"]
