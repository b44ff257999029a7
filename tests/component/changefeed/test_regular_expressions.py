"""What `ignore_where` makes of a `$regex` is what the server makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import bson
import pytest
from bson.code import Code
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex
from hypothesis import HealthCheck, assume, event, given, reject, settings
from hypothesis import strategies as st
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from changefeed.config.tables.match import MatchExpression
from changefeed.config.tables.regular_expression import RegularExpression, Unsupported
from devstack.mongodb.server import Client
from processor.task.rows.gate import READABLE

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
_SIGNS = "abkKsSzZ_019 -.\n\r\t\v\0{}[]#äÄßéſ\u212aλΛ\u2028ǆǅ\U0001f600"
_TEXTS = [
    *("", *_SIGNS, "aa", "ab", "ab\n", "a\nb", "a\n", "\na", "\n\n", "a\n\nb\n", "a\r\n", "aé a", "äb Äb", "k9_"),
    *(
        "abab",
        "aab\nba",
        "a{2}",
        "a-b",
        "a.b",
        "[a]",
        "a b#k",
        "éé",
        "aéa",
        "ſs",
        "Kk\u212a",
        "λΛ",
        "0190",
        "aaaaaaaab",
    ),
]
_VALUES: list[Any] = [
    *(*_TEXTS, None, 5, ["x", "ab"], [["ab"]], Code("ab"), Regex("ab"), Regex("ab", "im"), {"a": "ab"}),
    "a" * 44 + "b",
]
_ESCAPES = [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\n", r"\x41", r"\p{L}", r"\PN"]
_CLASSES = ["[:alpha:]", "[:^upper:]", "[:lower:]", "[:space:]", "[:punct:]"]
_MEMBERS = [
    *"abkKsz_0. #{|äß",
    *_ESCAPES,
    *_CLASSES,
    *[r"a-c", r"A-Z", r"0-9", r"\]", r"\-", r"\\", r"\b", r"\x{e4}", r"é-λ", r"à-ö"],
]
_PLAIN = [*"abkKsz_019 -#äÄßéſ\u212aλ}.{\n", *_ESCAPES]
_FURTHER = [r"\.", r"\t", r"\x{3bb}", r"\P{Lu}", r"\{", r"\/", r"\_", r"\ "]
_SETS = st.builds(
    "[{}{}{}]".format,
    st.sampled_from(["", "^"]),
    st.sampled_from(["", "", "]", "-"]),
    st.lists(st.sampled_from(_MEMBERS), min_size=1, max_size=3).map("".join),
)
_ONES = st.sampled_from([*_PLAIN, *_FURTHER])
_PLACES = st.sampled_from([r"^", r"$", r"\A", r"\z", r"\b"])
_TIMES = st.sampled_from(["", "", "", " +", *["*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}", "{2,3}?"]])
_HEADS = st.sampled_from(["(", "(?:", "(?<n>", "(?P<m>"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(inner | st.builds("{}{}){}".format, _HEADS, inner, _TIMES), min_size=1, max_size=3)
    return some.map("".join) | some.map("|".join)


_PATTERNS = st.recursive(st.builds("{}{}".format, _ONES | _SETS, _TIMES) | _PLACES, _grown, max_leaves=8)
_OPTIONS = st.sets(st.sampled_from("ims")).map(lambda letters: "".join(sorted(letters)))


_INVALID = 51091
"""Servers before 6.1 put a bracket behind the expression, which an open comment or `\\Q` hides, and want each name once."""
_SHORT = len(_VALUES) - 2
_REPEATED_GROUPS = re.compile(r"\)(?:[*+]|\{\d,\})")
"""On the longest text the server may give up, and on eight a's where groups that repeat without end are in each other: `((a*)*)*^`."""


@pytest.fixture(scope="module")
def values(source_client: Client) -> Iterator[Collection[Any]]:
    found = source_client["regular_expressions"]["values"]
    found.drop()
    found.insert_many([{"_id": number, "a": value} for number, value in enumerate(_VALUES)])
    found.insert_one(RawBSONDocument(bson.encode({"_id": -1, "a": "ab??"}).replace(b"??", b"\xff\xc3")))
    yield found
    source_client.drop_database("regular_expressions")


def _agree(values: Collection[Any], pattern: str, options: str, *, among: int = len(_VALUES)) -> None:
    query = {"a": {"$regex": pattern, "$options": options}}
    expected = {row["_id"] for row in values.find({**query, "_id": {"$lte": among}}, {"a": 0})}
    expression = MatchExpression.parse(query)
    rows = values.with_options(READABLE).find({"_id": {"$lte": among}})
    assert {row["_id"] for row in rows if expression.accepts(row)} == expected, (pattern, options)


@given(_PATTERNS, _OPTIONS)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_decides_as_the_server(values: Collection[Any], pattern: str, options: str) -> None:
    assume(len(_REPEATED_GROUPS.findall(pattern)) < 2)
    try:
        RegularExpression.parse(pattern, options)
    except Unsupported as refused:
        event(str(refused).partition(" (")[0])
        reject()
    try:
        _agree(values, pattern, options, among=_SHORT)
    except OperationFailure as error:
        if error.code != _INVALID:
            raise
        event("refused by the server")
        reject()


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("^(a+)+$", ""),
        ("^ab$", ""),
        ("b$", "m"),
        ("^b", "m"),
        (r"\w", "i"),
        ("[^\\W]", "i"),
        ("[k-s]", "i"),
        ("\\s", ""),
        ("ab", "im"),
        ("(?i)aB|AB", ""),
        (r"^[\w.-]+$", "i"),
        (r"[^\S]", ""),
    ],
)
def test_an_expression_decides_as_the_server(values: Collection[Any], pattern: str, options: str) -> None:
    _agree(values, pattern, options)
