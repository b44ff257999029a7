"""`RateLimit`: how much of something may happen each second, as a user writes it: `20MB/s`, `5000 docs/s`, or both."""

from __future__ import annotations

import re
from dataclasses import dataclass

from changefeed.config.options import Mistake, did_you_mean, shown

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DOCUMENTS = ("docs", "documents", "rows", "")
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,3})?) ?([A-Za-z]*)/s")
_LEAST_BYTES = 10_000
_MOST = 10**12
_HINT = "write a rate such as 20MB/s, 5000 docs/s, or both: 20MB/s, 5000 docs/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """None: not limited in that. At least one is."""

    documents: int | None = None
    bytes: int | None = None

    @classmethod
    def parse(cls, value: object) -> RateLimit:
        if isinstance(value, RateLimit):
            return value
        if not isinstance(value, str) or not value.strip():
            raise Mistake(f"found {shown(value)}; {_HINT}")
        found: dict[str, int] = {}
        for text in value.split(","):
            name, rate = _part(text.strip())
            if name in found:
                raise Mistake(f"found two limits for {name}; write each once")
            found[name] = rate
        return cls(**found)

    def __str__(self) -> str:
        parts = [_size_text(self.bytes)] if self.bytes is not None else []
        return ", ".join([*parts, *([f"{self.documents} docs/s"] if self.documents is not None else [])])


def _part(text: str) -> tuple[str, int]:
    match = _PART.fullmatch(text)
    unit = match[2] if match else ""
    if match is None or (unit not in _UNITS and unit not in _DOCUMENTS):
        meant = did_you_mean(unit, [*_UNITS, *_DOCUMENTS[:-1]]) if match else ""
        raise Mistake(f"found {shown(text)}; {_HINT}{meant}")
    name, least = ("bytes", _LEAST_BYTES) if unit in _UNITS else ("documents", 1)
    rate = int(float(match[1]) * _UNITS.get(unit, 1))
    if not least <= rate <= _MOST:
        allowed = "10kB/s to 1000GB/s" if name == "bytes" else "1 docs/s and more; pause the changefeed to stop it"
        raise Mistake(f"found {shown(text)}; allowed are {allowed}")
    return name, rate


def _size_text(size: int) -> str:
    unit = next(unit for unit in ("GB", "GiB", "MB", "MiB", "kB", "KiB", "B") if size % _UNITS[unit] == 0)
    return f"{size // _UNITS[unit]}{unit}/s"
