"""`Sessions`: who looks at a page. Nothing is stored: a cookie is signed with the token that its user has shown.

So it holds on every node that has the token file, and through restarts, and it ends when the token leaves the file, or after twelve hours. Of a
cookie nobody can compute the token. Without tokens nobody signs in: the console then listens on this machine only.

    cookie    1795224774.5f0c...    when it ends, and the signature
    csrf      81ad...               of that cookie, in each form: no other site can read it
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from datetime import timedelta

from admin.access import Access, AccessToken, Guard
from console.frame import Visitor

LIFETIME = timedelta(hours=12)


@dataclass(frozen=True, slots=True, repr=False)
class SignedIn:
    """`token` is None where nobody signs in."""

    visitor: Visitor
    token: AccessToken | None = None


class Sessions:
    def __init__(self, guard: Guard, cluster: str) -> None:
        self._guard = guard
        self._cluster = cluster
        self._key = secrets.token_hex()
        """Where there are no tokens."""
        self.cookie = f"sluice_{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
        """Its name. Cookies of one host are shared by all of its ports."""

    @property
    def open(self) -> bool:
        """Whether nobody has to sign in."""
        return self._guard.tokens is None

    def enter(self, secret: str) -> str | None:
        """A cookie for who knows a token."""
        given = secret.strip().encode()
        known = [token for token in self._tokens() if hmac.compare_digest(token.secret.encode(), given)]
        if not known:
            return None
        ends = str(int(time.time() + LIFETIME.total_seconds()))
        return f"{ends}.{self._signed(known[0].secret, 'session', ends)}"

    def who(self, cookie: str) -> SignedIn | None:
        if self.open:
            return SignedIn(Visitor(may_act=True, csrf=self._signed(self._key, "csrf", "")))
        ends, _, signature = cookie.partition(".")
        if not (ends.isascii() and ends.isdecimal() and signature.isascii()) or int(ends[:12]) < time.time():
            return None
        for token in self._tokens():
            if hmac.compare_digest(self._signed(token.secret, "session", ends), signature):
                may_act = token.access is Access.OPERATOR
                csrf = self._signed(token.secret, "csrf", cookie)
                return SignedIn(Visitor(name=token.name, may_act=may_act, csrf=csrf), token)
        return None

    def _tokens(self) -> tuple[AccessToken, ...]:
        return self._guard.tokens() if self._guard.tokens is not None else ()

    def _signed(self, secret: str, purpose: str, text: str) -> str:
        return hmac.new(secret.encode(), f"{purpose}\n{self._cluster}\n{text}".encode(), hashlib.sha256).hexdigest()
