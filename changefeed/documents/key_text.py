"""Keys in messages: short whatever they hold."""

from __future__ import annotations

from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

_MOST = 200
_READABLE: CodecOptions[dict[str, Any]] = CodecOptions(
    dict, datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


def key_text(key: bytes) -> str:
    """Of a raw `documentKey`; a long one by its beginning and its size."""
    text = str(bson.decode(key, _READABLE))
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(key)} bytes)"
