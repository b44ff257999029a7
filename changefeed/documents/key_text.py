"""`key_text`: a key as short text for messages."""

from __future__ import annotations

from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

_MOST = 200
_READABLE: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


def key_text(key: bytes) -> str:
    """From a raw `documentKey`. A long one is cut, and its size is added."""
    text = str(bson.decode(key, _READABLE))
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(key)} bytes)"
