"""`ReaderOptions`: what a user of Spark says about what is read. Pure.

    path        where the files are: file:///srv/orders, s3://bucket/prefix?region=.., as the sink of the changefeed has it
    tables      shop.orders, shop.*      all if it is left out
    start       earliest                 everything; a copy comes first if the changefeed began with one
                newest                   what comes after the newest watermark
                2026-11-29T12:00:00Z     what the source did from then on
                1795224774.9             the same, by the source's clock
                6B06115700000004.00..    from a `pos` on
    ddl         column                   a DDL is a row with its message in the column `ddl`
                stop                     a query ends just before a DDL that ends, renames or empties a table, until `start` names its `pos`
    ordered     false, true              true: the rows of a table are in one partition, in the order of the source
    maxRowsPerTrigger, maxBytesPerTrigger, maxFilesPerTrigger

Spark gives names of options in any case.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Self, TypeAlias

from sluice_client.cluster_time import ClusterTime
from sluice_client.feed_errors import ConfigurationError
from sluice_client.feed_reader import NOTHING, Watermark
from sluice_client.pos import position_of
from sluice_client.position import Position

EARLIEST, NEWEST = "earliest", "newest"
_LIMITS = ("maxRowsPerTrigger", "maxBytesPerTrigger", "maxFilesPerTrigger")
_NAMES = {name.lower(): name for name in ("path", "tables", "start", "ddl", "ordered", *_LIMITS)}
_POS = re.compile(r"[0-9A-F]{16}\.[\w.]+")
_NUMBER = re.compile(r"[1-9]\d{0,18}")

Start: TypeAlias = Position | str
"""A place, `EARLIEST` or `NEWEST`."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Of one batch. 0: no limit."""

    rows: int = 0
    bytes: int = 0
    files: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows or self.bytes or self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    path: str
    tables: tuple[str, ...] = ()
    start: Start = EARLIEST
    stop_at_ddl: bool = False
    ordered: bool = False
    limits: BatchLimits = BatchLimits()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        found = {name.lower(): value.strip() for name, value in options.items()}
        for name in found.keys() - _NAMES.keys():
            raise _refusal(
                name,
                f"is no option of this source{_near(name, _NAMES.values())}; there are {', '.join(_NAMES.values())}",
            )
        if not found.get("path"):
            raise _refusal("path", "is missing; write .load('file:///srv/orders') or .load('s3://bucket/prefix')")
        return cls(
            path=found["path"],
            tables=tuple(filter(None, (name.strip() for name in found.get("tables", "").split(",")))),
            start=_start(found.get("start", EARLIEST)),
            stop_at_ddl=_one_of("ddl", found.get("ddl", "column"), ("column", "stop")) == "stop",
            ordered=_one_of("ordered", found.get("ordered", "false").lower(), ("false", "true")) == "true",
            limits=BatchLimits(*(_number(name, found.get(name.lower())) for name in _LIMITS)),
        )

    @property
    def passed_ddl(self) -> Position | None:
        """Up to and including which a DDL stops nothing."""
        return self.start if isinstance(self.start, Position) else None

    def first(self, newest: Watermark | None) -> Watermark:
        """Where a new query begins."""
        if isinstance(self.start, Position):
            return Watermark(self.start)
        return newest if self.start == NEWEST and newest is not None else NOTHING

    def wants(self, name: str) -> bool:
        return not self.tables or any(fnmatchcase(name, pattern) for pattern in self.tables)

    def check_tables(self, known: Collection[str]) -> None:
        """A pattern may come to have tables later."""
        for name in self.tables:
            if not any(sign in name for sign in "*?[") and name not in known:
                there = ", ".join(sorted(known)[:20]) or "none yet"
                raise _refusal(
                    "tables",
                    f"{name!r} is no table of this changefeed{_near(name, known)}; it has had {there}. A pattern such as shop.* may also match later ones",
                )


def _start(text: str) -> Start:
    if text in (EARLIEST, NEWEST):
        return text
    try:
        if _POS.fullmatch(text):
            return position_of(text)
        if re.fullmatch(r"\d+\.\d+", text):
            return Position(ClusterTime.parse(text))
        return Position(ClusterTime.from_datetime(datetime.fromisoformat(text)))
    except ValueError:
        raise _refusal(
            "start",
            f"found {text!r}; write earliest, newest, a pos, or a time with its zone such as 2026-11-29T12:00:00Z",
        ) from None


def _number(name: str, text: str | None) -> int:
    if text is None:
        return 0
    if not _NUMBER.fullmatch(text):
        raise _refusal(name, f"found {text!r}; write a whole number of 1 or more")
    return int(text)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise _refusal(name, f"found {value!r}; allowed are {', '.join(allowed)}")
    return value


def _near(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f" (do you mean {close[0]}?)" if close else ""


def _refusal(option: str, problem: str) -> ConfigurationError:
    return ConfigurationError([f"{option}: {problem}"])
