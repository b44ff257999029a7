"""Which callers may call which methods."""

from __future__ import annotations

import pytest

from admin.access import Access, AccessToken, Guard, read_tokens
from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted

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
