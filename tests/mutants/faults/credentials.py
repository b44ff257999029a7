"""Faults of the room `credentials`."""

from __future__ import annotations

from tests.mutants.fault import Fault

CREDENTIALS = (
    Fault(
        "a secret is hidden only as it was written",
        "new = {form for text in texts for form in _forms(text)}\n    if new <=",
        "new = set(texts)\n    if new <=",
    ),
    Fault(
        "a part of a longer secret is shown",
        "found = sorted(_secrets, key=len, reverse=True)",
        "found = sorted(_secrets, key=len)",
    ),
    Fault(
        "a secret in other letters is shown",
        're.compile("|".join(parts), re.IGNORECASE) if parts else None',
        're.compile("|".join(parts)) if parts else None',
    ),
    Fault(
        "the password of a connection string is no secret",
        "        yield password\n        yield from _pieces(unquote_plus(password))\n",
        "        pass\n",
    ),
    Fault(
        "a secret option of a connection string is shown",
        "    yield from (value for name, value in options if name.lower() in SECRET_OPTIONS)\n",
        "",
    ),
    Fault(
        "a secret is known only after its connection string was parsed",
        "    keep_secret(*_secrets(uri, text, inserted))\n    try:\n        ConnectionUri.parse(text)\n",
        "    try:\n        ConnectionUri.parse(text)\n        keep_secret(*_secrets(uri, text, inserted))\n",
    ),
    Fault(
        "a log line is not redacted",
        "            renderer,\n            _redacted_line,\n",
        "            renderer,\n",
    ),
    Fault(
        "a replaced certificate of the same size is not noticed",
        "return found.st_mtime_ns, found.st_size, found.st_ino",
        "return 0, found.st_size, 0",
    ),
)
