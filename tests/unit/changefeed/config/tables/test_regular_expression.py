from __future__ import annotations

import pickle

import pytest

from changefeed.config.tables.regular_expression import RegularExpression, Unsupported


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
        (r"^[\w.-]+$", "i", "a\u212a", False),
        (r"^[\w.-]+$", "i", "A-b.c", True),
        (r"[^\S]", "", "\v", True),
        ("[[:upper:]]", "", "a", False),
        ("(?i)a", "", "A", True),
        ("^a$|^b$", "", "b\n", True),
        ("(a|(?<name>b$))", "", "b\n", True),
        ("a{", "", "a{", True),
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
        ("^(?!tmp_)", "", "a look-ahead, a look-behind or a group of another kind", '{$not: {$regex: "^tmp_"}}'),
        ("(?<=a)b", "", "(at character 1)", "$and"),
        (r"(a)\1", "", "a back-reference or an octal number (at character 4)", "write the character"),
        ("a++b", "", "a repetition (+) that repeats no character", r"\+"),
        ("(?>a)", "", "a group of another kind", "(?:a)"),
        ("(*UTF8)a", "", "a group of another kind", "(?:a)"),
        ("a(?i)b", "", "a group of another kind", "(?i) stand first"),
        ("a$b", "", "$ in the middle (at character 2)", "where the expression ends"),
        ("(a$)*", "", "$ in the middle", "where the expression ends"),
        ("(a$|b)c", "", "$ in the middle", "where the expression ends"),
        (r"^\s*$", "m", "^ with the option m before something else", "begins the line"),
        ("a|^", "m", "^ with the option m at the end", "begins the line"),
        (r"\Bx", "", "an escape that is not supported", "write the character"),
        (r"\v", "", "an escape that is not supported", r"\x and two digits"),
        (r"\Qa\E", "", "an escape that is not supported", "write the character"),
        (r"\p{Greek}", "", "an escape that is not supported", "[a-z]"),
        (r"\p{L}", "i", r"\p{L} with the option i", "write a set"),
        (r"[\wä]", "i", "a set with the option i that has letters and a class", "two sets"),
        (r"[!-~\w]", "i", "a set with the option i that has letters and a class", "two sets"),
        ("[[:upper:]]", "i", "a set with the option i that has letters and a class", "two sets"),
        (r"[\w-.]", "", "a set in a form that is not supported", "a hyphen last"),
        (r"[.-\w]", "", "a set in a form that is not supported", "a hyphen last"),
        ("[a-c-e]", "", "a set in a form that is not supported", "a hyphen last"),
        ("[[.a.]]", "", "a set in a form that is not supported", r"\["),
        ("[a", "", "a set in a form that is not supported", r"\]"),
        ("[b-a]", "", "invalid character class range", "b-a"),
        ("[[:alfa:]]", "", "invalid character class range", "[:alfa:]"),
        ("(a", "", "missing )", "(?:a"),
        ("a)", "", "unexpected )", "a)"),
        ("*a", "", "a repetition (*) that repeats no character", r"\*"),
        ("a{,3}", "", "a { that is not like {2}", r"\{"),
        ("a{3,2}", "", "invalid repetition size", "{3,2}"),
        ("a**", "", "a repetition (*) that repeats no character", r"\*"),
        ("^*a", "", "a repetition (*) that repeats no character", r"\*"),
        ("a\\", "", "an escape that is not supported", "write the character"),
        ("a\0", "", "a NUL character", r"\x00"),
        ("a{1001}", "", "invalid repetition size: {1001}", "at most 1000"),
    ],
)
def test_what_a_linear_engine_lacks_or_servers_understand_differently_is_refused(
    pattern: str, options: str, what: str, instead: str
) -> None:
    with pytest.raises(Unsupported) as refused:
        RegularExpression.parse(pattern, options)
    assert what in str(refused.value)
    assert instead in str(refused.value)
