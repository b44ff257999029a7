"""Texts that are no UTF-8, which servers take from other drivers."""

from __future__ import annotations

from collections.abc import Mapping

import bson
from bson.raw_bson import RawBSONDocument


def no_utf8(fields: Mapping[str, object]) -> RawBSONDocument:
    """Each question mark in the fields is such a byte."""
    return RawBSONDocument(bson.encode(fields).replace(b"?", b"\xe9"))
