"""`SinkOption`: one option of a sink's URI, in the words of its users. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOption:
    name: str
    values: str
    default: str
    about: str
