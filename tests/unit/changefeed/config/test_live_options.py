"""When options may be changed: one table, which the list for users and the refusals share."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import changefeed
from changefeed.config.configuration import Configuration
from changefeed.config.live_options import LIVE_OPTIONS, OPTIONS, Changeable, alike, differing, needing_a_pause
from cli.main import app

_FIELDS = {"id": "f", "source": "mongodb://s", "sink": "mongodb://t"}


def test_every_option_has_its_place() -> None:
    assert OPTIONS.keys() == {*Configuration.model_fields, "filter.tables"}


def test_what_needs_a_pause_is_named_and_live_options_are_not() -> None:
    plain = Configuration.parse(_FIELDS)
    changed = Configuration.parse(
        {**_FIELDS, "copy_limit": "1MB/s", "routes": [{"from": "a.*", "to": "b.*"}], "on_divergence": "fail"}
    )
    assert needing_a_pause(plain, changed) == ("on_divergence",)
    assert differing(plain, changed) == ("routes", "on_divergence")
    assert not alike(plain, changed)


@pytest.mark.parametrize(
    ("before", "after", "live"),
    [
        ("file:///d?commit_interval=60s", "file:///d?compression=zstd&commit_interval=5s&file_size=1MiB", True),
        ("file:///d", "file:///d?format=bson", False),
        ("file:///d", "file:///e", False),
        ("s3://bucket/p?region=a-b", "s3://bucket/p?region=a-b&compression=none", True),
        ("kafka://b/shop", "kafka://b/shop?compression=zstd&topic.retention.ms=1000", True),
        ("kafka://b/shop", "kafka://b/shop?topic.cleanup.policy=delete", False),
        ("kafka://b/shop", "kafka://b/shop?partitions=7", False),
        ("mongodb://t/?compressors=zstd", "mongodb://t/", False),
    ],
)
def test_of_a_sinks_options_those_that_readers_need_not_know_are_live(before: str, after: str, live: bool) -> None:
    one, other = (Configuration.parse({**_FIELDS, "sink": uri}) for uri in (before, after))
    assert alike(one, other) is live
    assert needing_a_pause(one, other) == (() if live else ("sink",))


def test_the_tables_of_a_filter_change_apart_from_its_rules() -> None:
    plain = Configuration.parse(_FIELDS)
    wider = Configuration.parse({**_FIELDS, "filter": {"tables": ["a.*"]}})
    assert differing(plain, wider) == ("filter.tables",)
    assert needing_a_pause(plain, wider) == ()
    ruled = Configuration.parse(
        {**_FIELDS, "filter": {"tables": ["a.*"], "events": [{"tables": ["a.b"], "ignore": ["delete"]}]}}
    )
    assert needing_a_pause(plain, ruled) == ("filter",)


def test_the_list_for_users_needs_no_server() -> None:
    answer = CliRunner().invoke(app, ["changefeed", "options", "-o", "yaml"])
    assert answer.exit_code == 0, answer.output
    listed = {each["option"]: each["changes"] for each in yaml.safe_load(answer.output)}
    assert listed == {name: changes.value for name, changes in OPTIONS.items()}
    table = CliRunner().invoke(app, ["changefeed", "options"]).output
    assert [line.split(maxsplit=1) for line in table.splitlines()] == [[*each] for each in OPTIONS.items()]


def test_the_handbook_says_which_options_are_live() -> None:
    text = (Path(changefeed.__file__).parents[1] / "docs" / "reference" / "configuration.md").read_text()
    page = " ".join(text.split())
    *others, last = [f"`{name}`" for name in OPTIONS if name in LIVE_OPTIONS]
    live = f"{', '.join(others)} and {last}"
    in_place = [name for name, changes in OPTIONS.items() if changes is Changeable.IN_PLACE]
    assert in_place == ["routes"]
    assert "While it runs `routes` too, as long as no table gets another name" in page
    created = " and ".join(f"`{name}`" for name, changes in OPTIONS.items() if changes is Changeable.AT_CREATE)
    assert f"{live} change while the changefeed runs; {created} are given at create" in page
