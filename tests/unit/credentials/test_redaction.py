"""No text shows a secret, in whatever form it is repeated."""

from __future__ import annotations

import json
from urllib.parse import quote, quote_plus

import pytest

from credentials.redaction import keep_secret, redacted, reveal

_SECRET = "p@ss /wörd:'?\\"


@pytest.mark.parametrize("form", [str, quote, quote_plus, str.upper, json.dumps, repr])
def test_each_form_of_a_secret_is_hidden(form: object) -> None:
    keep_secret(_SECRET)
    assert callable(form)

    text = redacted(f"connecting: {form(_SECRET)} is no host")

    assert "***" in text
    assert "rd:" not in text.lower()
    assert text.endswith("is no host")


def test_a_short_secret_is_hidden_where_it_stands_alone() -> None:
    keep_secret("ab1")

    assert redacted("ab1@host, cab1e, 'ab1'") == "***@host, cab1e, '***'"


def test_the_longer_of_two_secrets_is_hidden_whole() -> None:
    keep_secret("swordfish", "swordfish-and-more")

    assert redacted("got swordfish-and-more, swordfish") == "got ***, ***"


def test_what_turns_out_to_be_no_secret_is_shown_again() -> None:
    keep_secret("db7.example")
    assert redacted("DB7.example:27017: timed out") == "***:27017: timed out"

    reveal("db7.example")

    assert redacted("db7.example:27017: timed out") == "db7.example:27017: timed out"


def test_an_empty_secret_hides_nothing() -> None:
    keep_secret("", " ")

    assert redacted("nothing to hide") == "nothing to hide"
