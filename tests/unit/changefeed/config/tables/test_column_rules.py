"""What a user writes about fields that do not go to the target."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.config.configuration import Configuration
from changefeed.errors import ConfigurationError
from changefeed.table import TableName

USERS = TableName("shop", "users")


def configured(*rules: dict[str, Any]) -> Configuration:
    return Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b", "columns": list(rules)})


def refused(rule: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigurationError) as error:
        configured({"tables": ["shop.users"], **rule})
    return list(error.value.problems)


def test_a_rule_survives_being_stored_and_shown() -> None:
    rule = {
        "tables": ["shop.users"],
        "drop": ["ssn", "address.street"],
        "mask": {"name": "***", "phone": None, "age": 0, "vip": False},
        "hash": ["email"],
        "hash_key": "${env:HASH_KEY}",
    }
    found = configured(rule)
    assert Configuration.parse(found.model_dump(mode="json", exclude_none=True)) == found
    assert Configuration.model_validate(found.model_dump(mode="json")) == found
    assert found.public()["columns"][0]["mask"] == rule["mask"]
    assert found.without_credentials().columns == found.columns


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({}, "found a rule without fields"),
        ({"drop": ["_id"]}, "_id says which row it is"),
        ({"drop": ["_id.region"]}, "_id says which row it is"),
        ({"drop": ["items.0.price"]}, "leave the number out"),
        ({"drop": ["a..b"]}, "write the path of a field"),
        ({"drop": ["a"], "mask": {"a": 1}}, "twice"),
        ({"drop": ["a", "a.b"]}, "the first contains the second"),
        ({"hash": ["a"]}, "write both, or neither"),
        ({"drop": ["a"], "hash_key": "${env:X}"}, "write both, or neither"),
        ({"mask": {"a": [1]}}, "mask"),
        ({"mask": {"a": 2**64}}, "64 bits"),
    ],
)
def test_mistakes_are_named(rule: dict[str, Any], said: str) -> None:
    assert any(said in problem for problem in refused(rule)), refused(rule)


def test_a_key_that_is_written_out_is_refused_and_not_repeated() -> None:
    problems = refused({"hash": ["a"], "hash_key": "correct horse"})
    assert any("write ${env:NAME}" in problem for problem in problems)
    assert "correct horse" not in str(problems)


def test_all_rules_that_match_a_table_apply() -> None:
    found = configured({"tables": ["shop.*"], "drop": ["ssn"]}, {"tables": ["*.users"], "mask": {"name": "*"}})
    assert [(rule.drop, rule.mask) for rule in found.columns_of(USERS)] == [(("ssn",), {}), ((), {"name": "*"})]
    assert found.columns_of(TableName("crm", "notes")) == ()
    assert found.columns_of(TableName("shop", "a")) == found.columns_of(TableName("shop", "b"))
