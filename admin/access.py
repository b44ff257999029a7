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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted, SluiceError
from credentials.redaction import keep_secret
from credentials.secrets import stamp

_SHORTEST = 16
_BEARER = "bearer "

_log = structlog.get_logger()


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


class TokenFile:
    """The tokens of a file. They change when it is replaced. If the new one is damaged, the former tokens stay valid."""

    def __init__(self, path: Path, *, name: str) -> None:
        """Raises if the file is damaged. `name` is its name for messages."""
        self._path = path
        self._name = name
        self._stamp = stamp([path])
        self._tokens = self._read()

    def tokens(self) -> tuple[AccessToken, ...]:
        found = stamp([self._path])
        if found != self._stamp:
            self._stamp = found
            try:
                self._tokens = self._read()
            except SluiceError as error:
                _log.error("tokens_not_read_again", error=str(error))
            else:
                _log.info("tokens_read_again")
        return self._tokens

    def _read(self) -> tuple[AccessToken, ...]:
        try:
            tokens = read_tokens(self._path.read_text(encoding="utf-8"), name=self._name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError([f"{self._name}: {self._path} cannot be read ({type(error).__name__})"]) from None
        keep_secret(*(token.secret for token in tokens))
        return tokens


@dataclass(frozen=True, slots=True)
class Guard:
    """Without `tokens` every admitted caller is an operator."""

    tokens: Callable[[], tuple[AccessToken, ...]] | None = None

    def demand(self, needed: Access, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Raises unless the caller has this access."""
        if self.tokens is None:
            return
        granted = self._granted(self.tokens(), dict(metadata))
        if needed is Access.OPERATOR and granted is not Access.OPERATOR:
            raise NotPermitted(
                "this call needs the role operator, and the given token has the role viewer; give --token-file a file with an "
                "operator's token"
            )

    @staticmethod
    def _granted(tokens: tuple[AccessToken, ...], metadata: Mapping[str, str | bytes]) -> Access:
        given = str(metadata.get("authorization", ""))
        if not given.lower().startswith(_BEARER):
            raise NotAuthenticated(
                "this server requires a token; give its file with --token-file or SLUICE_TOKEN_FILE "
                "(other clients: the metadata authorization: Bearer TOKEN)"
            )
        secret = given[len(_BEARER) :].strip().encode()
        found = [token.access for token in tokens if hmac.compare_digest(token.secret.encode(), secret)]
        if not found:
            raise NotAuthenticated("this server does not know the token; ask its operator for one")
        return found[0]
