"""`keep_secret`, `redacted`: what this process must not show. Each text that leaves through a log or an error's message passes `redacted`.

Messages are written without secrets. But texts of the driver, of gRPC and of Python itself repeat what they were given: a host that cannot
be resolved, a value that cannot be parsed. So whoever reads a secret names it here first.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable
from urllib.parse import quote, quote_plus, unquote, unquote_plus

_HIDDEN = "***"
_MOST = 2_000
"""Secrets that were replaced long ago are forgotten."""
_SHORT = 6
"""A shorter secret is hidden only where it stands alone, because it may be a part of ordinary words."""

_lock = threading.Lock()
_secrets: dict[str, None] = {}
_pattern: re.Pattern[str] | None = None


def keep_secret(*texts: str) -> None:
    """Hides the texts, and their forms in a URI and in quotes, from now on."""
    new = {form for text in texts for form in _forms(text)}
    if new <= _secrets.keys():
        return
    with _lock:
        _secrets.update(dict.fromkeys(new))
        for oldest in list(_secrets)[:-_MOST]:
            del _secrets[oldest]
        _compile()


def reveal(*texts: str) -> None:
    """They have turned out to be no secrets."""
    known = {form for text in texts for form in _forms(text)} & _secrets.keys()
    if not known:
        return
    with _lock:
        for form in known:
            _secrets.pop(form, None)
        _compile()


def redacted(text: str) -> str:
    return _pattern.sub(_HIDDEN, text) if _pattern is not None else text


def _forms(text: str) -> Iterable[str]:
    plain = {text, unquote(text), unquote_plus(text)}
    written = {write(form) for form in plain for write in (quote, quote_plus, _quoted_whole)}
    quoted = {quoted(form)[1:-1] for form in plain for quoted in (repr, json.dumps)}
    return {form for form in plain | written | quoted if form.strip()}


def _quoted_whole(text: str) -> str:
    return quote(text, safe="")


def _compile() -> None:
    """The longest first, because one secret may be a part of another."""
    global _pattern  # noqa: PLW0603 - it belongs to `_secrets`
    found = sorted(_secrets, key=len, reverse=True)
    parts = [re.escape(each) if len(each) >= _SHORT else rf"(?<!\w){re.escape(each)}(?!\w)" for each in found]
    _pattern = re.compile("|".join(parts), re.IGNORECASE) if parts else None
