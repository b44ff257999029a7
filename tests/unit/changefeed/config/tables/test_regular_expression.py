from __future__ import annotations

import pickle

import pytest

from changefeed.config.tables.character_set import Unsupported
from changefeed.config.tables.regular_expression import RegularExpression


@pytest.mark.parametrize(
    ("pattern", "options", "text", "expected"),
    [
        ("^(a+)+$", "", "a" * 44 + "b", False),
        ("^(a|a)*$", "", "a" * 44 + "b", False),
        ("^(a|aa)+$", "", "a" * 16_000_000 + "b", False),
        ("^(a+)+$", "", "a" * 44 + "\n", True),
        ("a$", "", "a\n\n", False),
        ("^b", "m", "a\nb", True),
        (r"\s", "", "\v", True),
        (r"^\w$", "i", "\u212a", False),
        ("^k$", "i", "\u212a", True),
        (r"^[\dk]$", "i", "\u212a", True),
        ("[[:upper:]]", "i", "a", True),
        ("a b # c", "x", "ab", True),
        ("a(?i)b|c", "", "C", True),
        ("(a(?i)b)c", "", "aBC", False),
        (r"\Qa.b\E+", "", "a.bb", True),
        ("a{1,2}?", "", "a", True),
        ("", "", "", True),
    ],
)
def test_a_text_matches(pattern: str, options: str, text: str, expected: bool) -> None:
    assert RegularExpression.parse(pattern, options).matches(text) is expected


def test_a_text_that_is_no_utf8_matches_nothing() -> None:
    assert not RegularExpression.parse("a").matches(b"a\xff".decode(errors="surrogateescape"))


def test_it_goes_to_tasks() -> None:
    expression = RegularExpression.parse("^AB$", "i")
    received = pickle.loads(pickle.dumps(expression))
    assert received == expression
    assert received.matches("ab")


@pytest.mark.parametrize(
    ("pattern", "options", "what", "instead"),
    [
        ("^(?!tmp_)", "", "a look-ahead or a look-behind (before character 3)", '{$not: {$regex: "^tmp_"}}'),
        ("(?<=a)b", "", "a look-ahead or a look-behind (before character 2)", "$and"),
        (r"(a)\1", "", "a back-reference or an octal number", "no reference"),
        ("a++b", "", "a possessive repetition", "drop its second +"),
        ("(?>a)", "", "a group that begins with ?", "only (?: (?<name> and (?i)"),
        ("(*UTF8)a", "", "a group that begins with *", "only (?:"),
        ("(?ii)a", "", "(?ii)", "each option once"),
        ("a$b", "", r"$ or \Z in the middle", "where the expression ends"),
        ("(a$)*", "", r"$ or \Z in the middle", "where the expression ends"),
        ("^\\s*$", "m", "^ with the option m where nothing has to follow", "at least one character"),
        (r"\Bx", "", r"\B", "write the characters"),
        (r"\R", "", r"\R", "write the characters"),
        (r"\p{Greek}", "", r"\p without one of Unicode's general categories", r"\p{Lu}"),
        (r"\p{Lu}", "i", r"\p{Lu} with the option i", r"\p{L}"),
        (r"[\wä]", "i", "a set with the option i that has a class such as \\w and letters beyond ASCII", "two sets"),
        (r"[\w-.]", "", "a hyphen beside a class", r"write it as \-"),
        (r"[.-\w]", "", "a hyphen beside a class", r"write it as \-"),
        ("[a-c-e]", "", "a hyphen behind a range", r"write it as \-"),
        ("[b-a]", "", "a range that ends before it begins", "lower"),
        ("[[:alfa:]]", "", "[:alfa:]", "alpha"),
        ("[[.a.]]", "", "the beginning of a class", r"\["),
        ("[a", "", "a [ that is never closed", r"\["),
        ("(a", "", "a ( that is never closed", r"\("),
        ("a)", "", "a ) that closes nothing", r"\)"),
        ("*a", "", "a * that repeats nothing", r"\*"),
        ("a{,3}", "", "a { that repeats nothing", r"\{"),
        ("a{3,2}", "", "{3,2}, which ends before it begins", "smaller"),
        ("a**", "", "two repetitions", "in a group"),
        ("^*a", "", "an assertion that is repeated", "drop"),
        (r"\x{d800}", "", "which is no character", "another number"),
        ("a\\", "", "an end where something has to follow", r"\\"),
        ("a\0", "", "a NUL character", r"\x00"),
        ("a{1001}", "", "invalid repetition size: {1001}", "at most 1000"),
        ("(" * 101 + ")" * 101, "", "groups in each other, more than 100 deep", "fewer"),
    ],
)
def test_what_a_linear_engine_lacks_or_servers_understand_differently_is_refused(
    pattern: str, options: str, what: str, instead: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        RegularExpression.parse(pattern, options)
    assert what in str(refused.value)
    assert instead in str(refused.value)
