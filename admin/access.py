"""`Guard`: decides which callers may use the admin API.

    tokens    client CA    admitted callers
    none      none         all on this machine, as operator; listening on other addresses must be allowed explicitly
    none      given        those with a certificate of that CA, as operator
    given     any          those with a token, with the token's role (and with a certificate, if a CA is given)

A token file has one line for each token, `role:token`; empty lines and lines that begin with # are ignored:

    viewer:9f8c2e5a6b1d4c7e
    operator:1b6d9e3f8a2c5d7b
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted

_SHORTEST = 16
_BEARER = "bearer "


class Access(StrEnum):
    VIEWER = "viewer"
    """May call the methods that only read."""
    OPERATOR = "operator"
    """May call all methods."""


@dataclass(frozen=True, slots=True, repr=False)
class AccessToken:
    access: Access
    secret: str


def read_tokens(text: str, *, name: str) -> tuple[AccessToken, ...]:
    """`name` is the file's name for messages; these never show a token."""
    problems: list[str] = []
    tokens: list[AccessToken] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        role, separator, secret = line.strip().partition(":")
        if not separator or role not in tuple(Access):
            problems.append(f"{name} line {number}: expected viewer:TOKEN or operator:TOKEN, found another form")
        elif len(secret) < _SHORTEST or not secret.isascii() or " " in secret:
            problems.append(
                f"{name} line {number}: the token is shorter than {_SHORTEST} characters, not ASCII or contains a space; "
                "create one, for example with: openssl rand -hex 32"
            )
        else:
            tokens.append(AccessToken(Access(role), secret))
    if not tokens and not problems:
        problems.append(f"{name}: it contains no token; write a line role:token")
    if problems:
        raise ConfigurationError(problems)
    return tuple(tokens)


@dataclass(frozen=True, slots=True)
class Guard:
    """Without `tokens` every admitted caller is an operator."""

    tokens: tuple[AccessToken, ...] | None = None

    def demand(self, needed: Access, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Raises unless the caller has this access."""
        if self.tokens is None:
            return
        granted = self._granted(self.tokens, dict(metadata))
        if needed is Access.OPERATOR and granted is not Access.OPERATOR:
            raise NotPermitted("this call needs the token of an operator; the given token is a viewer's")

    @staticmethod
    def _granted(tokens: tuple[AccessToken, ...], metadata: Mapping[str, str | bytes]) -> Access:
        given = str(metadata.get("authorization", ""))
        if not given.lower().startswith(_BEARER):
            raise NotAuthenticated("this server requires a token; send the metadata authorization: Bearer TOKEN")
        secret = given[len(_BEARER) :].strip().encode()
        found = [token.access for token in tokens if hmac.compare_digest(token.secret.encode(), secret)]
        if not found:
            raise NotAuthenticated("this server does not know the token; ask its operator for one")
        return found[0]
