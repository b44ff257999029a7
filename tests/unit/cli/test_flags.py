"""The flags of a command are those of the model that they fill."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel
from typer.testing import CliRunner

from changefeed.config.configuration import Configuration
from changefeed.config.options import Flag
from cli.commands.configured import create, validate
from cli.flags import Given, options_of
from node.configuration import NodeConfiguration


def given(model: type[BaseModel], *flags: str) -> Given:
    """What a command gets."""
    found: list[Given] = []

    @options_of(model)
    def command(*, given: Given) -> None:
        found.append(given)

    app = typer.Typer()
    app.command()(command)
    answer = CliRunner().invoke(app, list(flags))
    assert answer.exit_code == 0, answer.output
    return found[0]


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ((), {}),
        (("--name", "n1", "--grace", "5"), {"name": "n1", "grace": 5.0}),
        (("--roles", "owner, processor"), {"roles": ["owner", "processor"]}),
        (("--etcd", "a:1,b:2", "--etcd-user", "u"), {"etcd": {"endpoints": ["a:1", "b:2"], "user": "u"}}),
        (("--admin-client-ca", "ca.pem"), {"admin": {"client_ca": "ca.pem"}}),
        (("--allow-unauthenticated",), {"admin": {"allow_unauthenticated": True}}),
        (("--log-format", "json"), {"log_format": "json"}),
        (
            ("--spark-conf", "spark.a=1", "--spark-conf", "spark.b=x=y"),
            {"spark": {"conf": {"spark.a": "1", "spark.b": "x=y"}}},
        ),
    ],
)
def test_flags_become_the_fields_of_a_file(flags: tuple[str, ...], fields: Mapping[str, Any]) -> None:
    assert given(NodeConfiguration, *flags).fields == fields


def test_a_pattern_may_have_a_comma_and_a_flag_for_each() -> None:
    found = given(Configuration, "--tables", "shop.a{1,2}", "--tables", "crm.*")
    assert found.fields == {"filter": {"tables": ["shop.a{1,2}", "crm.*"]}}


def test_each_option_of_a_node_has_a_flag_that_says_what_it_is() -> None:
    def without(model: type[BaseModel], at: str = "") -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            flag = next((each for each in field.metadata if isinstance(each, Flag)), Flag())
            inside = field.annotation
            if isinstance(inside, type) and issubclass(inside, BaseModel):
                found += without(inside, f"{at}{name}.")
            elif not flag.help:
                found.append(f"{at}{name}")
        return found

    assert without(NodeConfiguration) == []


def test_validate_takes_every_flag_of_a_changefeed_that_create_takes() -> None:
    own = {"dry_run", "wait", "timeout"}
    assert set(inspect.signature(create).parameters) - set(inspect.signature(validate).parameters) <= own


def test_a_flag_keeps_what_the_file_has_beside_it(tmp_path: Path) -> None:
    from cli.commands.configured import _written

    file = tmp_path / "feed.yaml"
    file.write_text(
        "id: f\nsource: mongodb://a\nsink: mongodb://b\n"
        "filter: {tables: [shop.*], events: [{tables: [shop.audit], ignore: [delete]}]}\n"
    )
    written = Configuration.from_yaml(_written(str(file), None, given(Configuration, "--tables", "shop.a*")))
    assert [str(pattern) for pattern in written.filter.tables] == ["shop.a*"]
    assert len(written.filter.events) == 1
