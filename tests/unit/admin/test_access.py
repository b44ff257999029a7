"""Which callers may call which methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from admin.access import Access, AccessToken, Guard, TokenFile, read_tokens
from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted
from credentials.redaction import redacted, reveal

_VIEWER, _OPERATOR = "v" * 32, "o" * 32
_TOKENS = (AccessToken(Access.VIEWER, _VIEWER), AccessToken(Access.OPERATOR, _OPERATOR))
_GUARD = Guard(lambda: _TOKENS)


def _bearing(secret: str) -> list[tuple[str, str | bytes]]:
    return [("user-agent", "grpc"), ("authorization", f"Bearer {secret}")]


def test_a_viewer_reads_and_an_operator_does_everything() -> None:
    _GUARD.demand(Access.VIEWER, _bearing(_VIEWER))
    _GUARD.demand(Access.VIEWER, _bearing(_OPERATOR))
    _GUARD.demand(Access.OPERATOR, _bearing(_OPERATOR))
    with pytest.raises(NotPermitted, match="needs the role operator, and the given token has the role viewer"):
        _GUARD.demand(Access.OPERATOR, _bearing(_VIEWER))


@pytest.mark.parametrize("secret", ["", "v" * 31, "v" * 33, _VIEWER.upper(), "é" * 32])
def test_a_token_that_is_not_known_lets_nobody_in(secret: str) -> None:
    with pytest.raises(NotAuthenticated, match="does not know the token"):
        _GUARD.demand(Access.VIEWER, _bearing(secret))


@pytest.mark.parametrize("metadata", [[], [("authorization", _VIEWER)], [("authorization", f"Basic {_VIEWER}")]])
def test_no_token_lets_nobody_in(metadata: list[tuple[str, str | bytes]]) -> None:
    with pytest.raises(NotAuthenticated, match="requires a token"):
        _GUARD.demand(Access.VIEWER, metadata)


def test_without_tokens_everybody_is_an_operator() -> None:
    Guard().demand(Access.OPERATOR, [])


def test_a_token_file_holds_roles_and_tokens() -> None:
    tokens = read_tokens(f"# ops\noperator:{_OPERATOR}\n\nviewer:{_VIEWER}\n", name="tokens")
    assert tokens == (AccessToken(Access.OPERATOR, _OPERATOR), AccessToken(Access.VIEWER, _VIEWER))


def test_a_wrong_token_file_names_its_lines_and_no_token() -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_tokens(f"admin:{_VIEWER}\nviewer:short\n{_OPERATOR}\n", name="tokens")
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "tokens line 1",
        "tokens line 2",
        "tokens line 3",
    ]
    assert not any(secret in str(refused.value) for secret in (_VIEWER, _OPERATOR, "short\n"))
    with pytest.raises(ConfigurationError, match="contains no token"):
        read_tokens("# nothing\n", name="tokens")


def test_a_token_file_that_is_damaged_leaves_the_former_tokens_valid(tmp_path: Path) -> None:
    """Otherwise a mistake in a mounted file would lock everybody out, the one who can mend it included."""
    path = tmp_path / "tokens"
    path.write_text("viewer:1111222233334444\n")
    file = TokenFile(path, name="admin.token_file")
    assert [token.secret for token in file.tokens()] == ["1111222233334444"]
    path.write_text("viewer:5555666677778888\nnobody:here\n")
    assert [token.secret for token in file.tokens()] == ["1111222233334444"]
    path.unlink()
    assert [token.secret for token in file.tokens()] == ["1111222233334444"]
    path.write_text("operator:9999aaaabbbbccccdd\n")
    assert [(token.access, token.secret) for token in file.tokens()] == [(Access.OPERATOR, "9999aaaabbbbccccdd")]


def test_a_token_is_in_no_text_from_when_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("viewer:eeeeffff00001111\n")
    TokenFile(path, name="admin.token_file")
    assert redacted("authorization: Bearer eeeeffff00001111") == "authorization: Bearer ***"
    reveal("eeeeffff00001111")
