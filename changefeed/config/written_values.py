"""Values as a user writes them: rates, delays, times, sizes and the capture. A mistake in one is worded here.

20MB/s, 5000 docs/s     30s 15m 1h 2d     2026-11-21T00:00:00Z     1795224774.9     64MiB
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from changefeed.capture import ASKED_FOR, Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.options import Mistake, did_you_mean, shown

_BYTES_OF = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DOCUMENTS = ("docs", "documents", "rows", "")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,3})?) ?([A-Za-z]*)/s")
_SMALLEST_RATE = 10_000
_GREATEST_RATE = 10**12
_RATE_HINT = "write a rate such as 20MB/s, 5000 docs/s, or both: 20MB/s, 5000 docs/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """How much of something may happen each second. None: not limited in that. At least one is."""

    documents: int | None = None
    bytes: int | None = None

    @classmethod
    def parse(cls, value: object) -> RateLimit:
        if isinstance(value, RateLimit):
            return value
        if not isinstance(value, str) or not value.strip():
            raise Mistake(f"found {shown(value)}; {_RATE_HINT}")
        found: dict[str, int] = {}
        for text in value.split(","):
            name, rate = _limit(text.strip())
            if name in found:
                raise Mistake(f"found two limits for {name}; write each once")
            found[name] = rate
        return cls(**found)

    def __str__(self) -> str:
        parts = [_rate_text(self.bytes)] if self.bytes is not None else []
        return ", ".join([*parts, *([f"{self.documents} docs/s"] if self.documents is not None else [])])


def _limit(text: str) -> tuple[str, int]:
    match = _RATE.fullmatch(text)
    unit = match[2] if match else ""
    if match is None or (unit not in _BYTES_OF and unit not in _DOCUMENTS):
        meant = did_you_mean(unit, [*_BYTES_OF, *_DOCUMENTS[:-1]]) if match else ""
        raise Mistake(f"found {shown(text)}; {_RATE_HINT}{meant}")
    name, least = ("bytes", _SMALLEST_RATE) if unit in _BYTES_OF else ("documents", 1)
    rate = int(float(match[1]) * _BYTES_OF.get(unit, 1))
    if not least <= rate <= _GREATEST_RATE:
        allowed = "10kB/s to 1000GB/s" if name == "bytes" else "1 docs/s and more; pause the changefeed to stop it"
        raise Mistake(f"found {shown(text)}; allowed are {allowed}")
    return name, rate


def _rate_text(size: int) -> str:
    unit = next(unit for unit in ("GB", "GiB", "MB", "MiB", "kB", "KiB", "B") if size % _BYTES_OF[unit] == 0)
    return f"{size // _BYTES_OF[unit]}{unit}/s"


_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DELAY = re.compile(r"(\d{1,8})([smhd])")
_LONGEST_DELAY = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Delay:
    """A time span as users write it, such as how long the source must have had a change before it is applied."""

    span: timedelta

    @classmethod
    def parse(cls, value: object) -> Delay:
        if isinstance(value, Delay):
            return value
        match = _DELAY.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise Mistake(f"found {shown(value)}; write null or a time such as 30s, 15m, 1h, 2d")
        span = timedelta(seconds=int(match[1]) * _SECONDS_OF[match[2]])
        if not timedelta(0) < span <= _LONGEST_DELAY:
            raise Mistake(f"found {shown(value)}; allowed are 1s to {_LONGEST_DELAY.days}d")
        return cls(span)

    def __str__(self) -> str:
        seconds = int(self.span.total_seconds())
        unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _SECONDS_OF[unit] == 0)
        return f"{seconds // _SECONDS_OF[unit]}{unit}"


_SIZE = re.compile(r"(\d{1,15}) ?([A-Za-z]*)")
_SIZES = {"": 1, **_BYTES_OF}
_SMALLEST_BATCH, _LARGEST_BATCH = 1 << 20, 16 << 30

TIME_HINT = "a time such as 2026-11-21T00:00:00Z or a cluster time such as 1795224774.9"


class Start(StrEnum):
    """Where a changefeed starts, if not at a given time."""

    INITIAL = "initial"
    """Copy the tables as they are, then follow them."""
    NOW = "now"
    """Follow changes from the changefeed's creation on."""


def _time(value: object) -> ClusterTime:
    if isinstance(value, ClusterTime):
        return value
    if isinstance(value, datetime):
        return ClusterTime.from_datetime(value)
    if not isinstance(value, str):
        raise Mistake(f"found {shown(value)}; write {TIME_HINT}, in quotes")
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        if re.fullmatch(r"\d+\.\d+", value):
            return ClusterTime.parse(value)
        raise Mistake(f"found {shown(value)}; write {TIME_HINT}") from None
    if moment.tzinfo is None:
        raise Mistake(f"found {shown(value)}, which has no time zone; write {moment.isoformat()}Z for UTC")
    return ClusterTime.from_datetime(moment)


def _start(value: object) -> Start | ClusterTime:
    if isinstance(value, str) and value in tuple(Start):
        return Start(value)
    if isinstance(value, str) and (meant := did_you_mean(value, Start)):
        raise Mistake(f"found {shown(value)}; write initial, now, {TIME_HINT}{meant}")
    try:
        return _time(value)
    except ValueError as error:
        raise Mistake(str(error).replace("; write a time", "; write initial, now, a time")) from None


def _capture(value: object) -> Capture:
    if isinstance(value, str) and value in ASKED_FOR:
        return Capture(value)
    raise Mistake(f"found {shown(value)}; allowed are {', '.join(ASKED_FOR)}{did_you_mean(value, ASKED_FOR)}")


def _bytes(value: object) -> int:
    match = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) and not isinstance(value, bool) else None
    if match is None or match[2] not in _SIZES:
        meant = did_you_mean(match[2], _SIZES) if match else ""
        raise Mistake(f"found {shown(value)}; write a size such as 64MiB{meant}")
    size = int(match[1]) * _SIZES[match[2]]
    if not _SMALLEST_BATCH <= size <= _LARGEST_BATCH:
        raise Mistake(f"found {shown(value)}; allowed are 1MiB to 16GiB")
    return size


def _size_text(size: int) -> str:
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _SIZES[unit] == 0)
    return f"{size // _SIZES[unit]}{unit}"


Limit: TypeAlias = Annotated[RateLimit, PlainValidator(RateLimit.parse), PlainSerializer(str)]
WrittenDelay: TypeAlias = Annotated[Delay, PlainValidator(Delay.parse), PlainSerializer(str)]
Time: TypeAlias = Annotated[ClusterTime, PlainValidator(_time), PlainSerializer(str)]
StartAt: TypeAlias = Annotated[Start | ClusterTime, PlainValidator(_start), PlainSerializer(str)]
AskedCapture: TypeAlias = Annotated[Capture, PlainValidator(_capture), PlainSerializer(str)]
Bytes: TypeAlias = Annotated[int, BeforeValidator(_bytes), PlainSerializer(_size_text, when_used="json")]
