"""`Guard`: decides which callers may use the admin API.

    tokens    client CA    admitted callers
    none      none         all on this machine, as operator; listening on other addresses must be allowed explicitly
    none      given        those with a certificate of that CA, as operator
    given     any          those with a token, with the token's role (and with a certificate, if a CA is given)

A token file has one line for each token, `name:role:token`; empty lines and lines that begin with # are ignored:

    dashboard:viewer:9f8c2e5a6b1d4c7e
    maria:operator:1b6d9e3f8a2c5d7b

`Caller` is who asks, for the audit: named by the token, or else by the certificate.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from changefeed.errors import ConfigurationError, NotAuthenticated, NotPermitted
from credentials.redaction import keep_secret
from credentials.secrets import FreshFiles

_SHORTEST = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class Access(StrEnum):
    VIEWER = "viewer"
    """May call the methods that only read."""
    OPERATOR = "operator"
    """May call all methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who makes a call, whatever door it comes through. Changes are recorded with it."""

    name: str
    access: Access
    address: str = ""
    """The host that the call comes from."""

    def demand(self, needed: Access) -> None:
        """Raises unless the caller has this access."""
        if needed is Access.OPERATOR and self.access is not Access.OPERATOR:
            raise NotPermitted(
                f"this call needs the role operator, and the token of {self.name} has the role viewer; give --token-file a file with an "
                "operator's token"
            )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Credentials:
    """What a caller shows: its token, if any, and the name in its client certificate, which TLS has verified."""

    token: str | None = None
    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class AccessToken:
    access: Access
    secret: str
    name: str


def read_tokens(text: str, *, name: str) -> tuple[AccessToken, ...]:
    """`name` is the file's name for messages; these never show a token."""
    problems: list[str] = []
    tokens: list[AccessToken] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        whose, _, rest = line.strip().partition(":")
        role, _, secret = rest.partition(":")
        if role not in tuple(Access):
            problems.append(
                f"{name} line {number}: expected NAME:viewer:TOKEN or NAME:operator:TOKEN, found another form"
            )
        elif not _NAME.fullmatch(whose):
            problems.append(f"{name} line {number}: the name is not of up to 64 letters, digits and . _ - @")
        elif len(secret) < _SHORTEST or not secret.isascii() or " " in secret:
            problems.append(
                f"{name} line {number}: the token is shorter than {_SHORTEST} characters, not ASCII or contains a space; "
                "create one, for example with: openssl rand -hex 32"
            )
        else:
            tokens.append(AccessToken(Access(role), secret, whose))
    if not tokens and not problems:
        problems.append(f"{name}: it contains no token; write a line name:role:token")
    if problems:
        raise ConfigurationError(problems)
    return tuple(tokens)


def token_file(path: Path, *, name: str) -> FreshFiles[tuple[AccessToken, ...]]:
    """The tokens of a file. They change when it is replaced; if the new one is damaged, the former tokens stay valid. `name`: for messages."""

    def read() -> tuple[AccessToken, ...]:
        try:
            tokens = read_tokens(path.read_text(encoding="utf-8"), name=name)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError([f"{name}: {path} cannot be read ({type(error).__name__})"]) from None
        keep_secret(*(token.secret for token in tokens))
        return tokens

    return FreshFiles(name, [path], read)


@dataclass(frozen=True, slots=True)
class Guard:
    """Without `tokens` every admitted caller is an operator."""

    tokens: Callable[[], tuple[AccessToken, ...]] | None = None

    def caller(self, shown: Credentials) -> Caller:
        """Raises if these credentials admit nobody."""
        if self.tokens is None:
            return Caller(name=shown.certificate or "anonymous", access=Access.OPERATOR, address=shown.address)
        if shown.token is None:
            raise NotAuthenticated(
                "this server requires a token; give its file with --token-file or SLUICE_TOKEN_FILE "
                "(other clients: the metadata authorization: Bearer TOKEN)"
            )
        secret = shown.token.encode()
        found = [token for token in self.tokens() if hmac.compare_digest(token.secret.encode(), secret)]
        if not found:
            raise NotAuthenticated("this server does not know the token; ask its operator for one")
        return Caller(name=found[0].name, access=found[0].access, address=shown.address)
