"""`key_only`, `claim_check`: what is sent in place of a message that its topic does not take. Pure, and the same in all formats.

Key and headers are those of the message, and one header more. The value is JSON:

    sluice.large  key_only       {"v": 1, "large": "key_only", "bytes": 1234567}
    sluice.large  claim_check    {"v": 1, "large": "claim_check", "bytes": 1234567, "crc32": 305419896, "claim": "<place>/claim/<table>/<name>"}

The file has the value that the message would have had. It has the same name at each repeat.
"""

from __future__ import annotations

import hashlib
import json
import zlib

from sink.events.formats.message_format import POS, TABLE, KeyedMessage

LARGE = "sluice.large"
FOLDER = "claim"
_HASH = 24


def key_only(message: KeyedMessage) -> KeyedMessage:
    return _instead(message, "key_only", {})


def claim_check(message: KeyedMessage, place: str) -> KeyedMessage:
    """`place`: of the file, which is written before this is sent."""
    return _instead(message, "claim_check", {"crc32": zlib.crc32(message.value or b""), "claim": place})


def claim_name(message: KeyedMessage) -> str:
    """Copied documents of a chunk have one position, so the key is part of it."""
    headers = dict(message.headers)
    table, pos = headers[TABLE].decode(), headers[POS].decode()
    return f"{FOLDER}/{table}/{pos}.{hashlib.sha256(message.key or b'').hexdigest()[:_HASH]}"


def _instead(message: KeyedMessage, kind: str, more: dict[str, object]) -> KeyedMessage:
    about = {"v": 1, "large": kind, "bytes": len(message.value or b""), **more}
    return KeyedMessage(message.key, json.dumps(about).encode(), [*message.headers, (LARGE, kind.encode())])
