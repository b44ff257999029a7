"""Which callers may call which methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from admin.access import Access, AccessToken, Caller, Credentials, Guard, read_tokens, token_file
from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted
from credentials.redaction import redacted, reveal

_VIEWER, _OPERATOR = "v" * 32, "o" * 32
_TOKENS = (AccessToken(Access.VIEWER, _VIEWER, "dashboard"), AccessToken(Access.OPERATOR, _OPERATOR, "maria"))
_GUARD = Guard(lambda: _TOKENS)


def _caller(secret: str) -> Caller:
    return _GUARD.caller(Credentials(token=secret, certificate="laptop", address="10.0.0.7"))


def test_a_viewer_reads_and_an_operator_does_everything() -> None:
    _caller(_VIEWER).demand(Access.VIEWER)
    _caller(_OPERATOR).demand(Access.VIEWER)
    _caller(_OPERATOR).demand(Access.OPERATOR)
    with pytest.raises(NotPermitted, match="needs the role operator, and the token of dashboard has the role viewer"):
        _caller(_VIEWER).demand(Access.OPERATOR)


def test_a_caller_is_named_by_its_token_or_else_by_its_certificate() -> None:
    assert _caller(_OPERATOR) == Caller(name="maria", access=Access.OPERATOR, address="10.0.0.7")
    assert Guard().caller(Credentials(token=_VIEWER, certificate="laptop")).name == "laptop"
    assert Guard().caller(Credentials(address="127.0.0.1")) == Caller(
        name="anonymous", access=Access.OPERATOR, address="127.0.0.1"
    )


@pytest.mark.parametrize("secret", ["", "v" * 31, "v" * 33, _VIEWER.upper(), "é" * 32])
def test_a_token_that_is_not_known_lets_nobody_in(secret: str) -> None:
    with pytest.raises(NotAuthenticated, match="does not know the token"):
        _caller(secret)


def test_no_token_lets_nobody_in() -> None:
    with pytest.raises(NotAuthenticated, match="requires a token"):
        _GUARD.caller(Credentials(certificate="laptop"))


def test_without_tokens_everybody_is_an_operator() -> None:
    Guard().caller(Credentials()).demand(Access.OPERATOR)


def test_a_token_file_holds_names_roles_and_tokens() -> None:
    tokens = read_tokens(f"# ops\nmaria:operator:{_OPERATOR}\n\nci@n1:viewer:{_VIEWER}:x\n", name="tokens")
    assert tokens == (
        AccessToken(Access.OPERATOR, _OPERATOR, "maria"),
        AccessToken(Access.VIEWER, f"{_VIEWER}:x", "ci@n1"),
    )


def test_a_wrong_token_file_names_its_lines_and_no_token() -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_tokens(
            f"viewer:{_VIEWER}\nci:viewer:short\n{_OPERATOR}\nma ria:viewer:{_VIEWER}\nx:admin:{_VIEWER}\n",
            name="tokens",
        )
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        "tokens line 1",
        "tokens line 2",
        "tokens line 3",
        "tokens line 4",
        "tokens line 5",
    ]
    assert not any(secret in str(refused.value) for secret in (_VIEWER, _OPERATOR, "short\n"))
    with pytest.raises(ConfigurationError, match="contains no token"):
        read_tokens("# nothing\n", name="tokens")


def test_a_token_file_that_is_damaged_leaves_the_former_tokens_valid(tmp_path: Path) -> None:
    """Otherwise a mistake in a mounted file would lock everybody out, the one who can mend it included."""
    path = tmp_path / "tokens"
    path.write_text("ci:viewer:1111222233334444\n")
    file = token_file(path, name="admin.token_file")
    assert [token.secret for token in file.value()] == ["1111222233334444"]
    path.write_text("ci:viewer:5555666677778888\nnobody:here\n")
    assert [token.secret for token in file.value()] == ["1111222233334444"]
    path.unlink()
    assert [token.secret for token in file.value()] == ["1111222233334444"]
    path.write_text("ci:operator:9999aaaabbbbccccdd\n")
    assert [(token.access, token.secret) for token in file.value()] == [(Access.OPERATOR, "9999aaaabbbbccccdd")]


def test_a_token_is_in_no_text_from_when_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("ci:viewer:eeeeffff00001111\n")
    token_file(path, name="admin.token_file")
    assert redacted("authorization: Bearer eeeeffff00001111") == "authorization: Bearer ***"
    reveal("eeeeffff00001111")
