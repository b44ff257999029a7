"""`ClusterTime`: MongoDB's logical clock, the only time that orders events. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # only the servers have pydantic, which calls what is said here about its schemas
    from bson.timestamp import Timestamp
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_TEXT = re.compile(r"(\d{1,10})\.(\d{1,10})")
_MAX = 2**32 - 1
_LARGEST_INCREMENT = 2**31 - 1


@dataclass(frozen=True, slots=True, order=True)
class ClusterTime:
    """A BSON Timestamp: seconds since the epoch and a counter within the second.

    Several events may carry one cluster time (a transaction, or from 8.0 unrelated writes): a place between
    them is a `Position`.
    """

    seconds: int
    increment: int

    def __post_init__(self) -> None:
        if not (0 <= self.seconds <= _MAX and 0 <= self.increment <= _MAX):
            raise ValueError(f"cluster time {self.seconds}.{self.increment} does not fit two unsigned 32-bit numbers")

    @classmethod
    def from_bson(cls, timestamp: Timestamp) -> ClusterTime:
        return cls(timestamp.time, timestamp.inc)

    def to_bson(self) -> Timestamp:
        from bson.timestamp import Timestamp  # noqa: PLC0415 - the command line, which is to be quick, needs no BSON

        return Timestamp(self.seconds, self.increment)

    @classmethod
    def from_int(cls, value: int) -> ClusterTime:
        """From the 64-bit form: seconds in the high half, increment in the low."""
        return cls(value >> 32, value & _MAX)

    def to_int(self) -> int:
        return self.seconds << 32 | self.increment

    @classmethod
    def parse(cls, text: str) -> ClusterTime:
        """From `1795224774.9`."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a cluster time; write seconds.increment, for example 1795224774.9")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_datetime(cls, moment: datetime) -> ClusterTime:
        """The first cluster time of that second: a fraction of a second has no meaning in the logical clock."""
        if moment.tzinfo is None:
            raise ValueError(f"{moment.isoformat()} has no time zone; add one, for example {moment.isoformat()}Z")
        return cls(int(moment.timestamp()), 0)

    @classmethod
    def from_iso(cls, text: str) -> ClusterTime:
        """From `2026-11-21T00:00:00Z`; other offsets are converted."""
        return cls.from_datetime(datetime.fromisoformat(text))

    def to_datetime(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def to_iso(self) -> str:
        return self.to_datetime().isoformat().replace("+00:00", "Z")

    def next(self) -> ClusterTime:
        """The smallest later cluster time."""
        return ClusterTime.from_int(self.to_int() + 1)

    def previous(self) -> ClusterTime:
        """The last time before it that an entry of an oplog may have.

        A server takes increments for signed numbers. From a time with a larger one it scans the oplog from its beginning.
        """
        if self.increment > 0:
            return ClusterTime(self.seconds, min(self.increment - 1, _LARGEST_INCREMENT))
        return ClusterTime(max(0, self.seconds - 1), _LARGEST_INCREMENT if self.seconds else 0)

    def earlier_by(self, span: timedelta) -> ClusterTime:
        """The time so much earlier; whole seconds, as `seconds` are."""
        return ClusterTime(max(0, self.seconds - int(span.total_seconds())), self.increment)

    def __str__(self) -> str:
        return f"{self.seconds}.{self.increment}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return as_text(cls)


def as_text(kind: Any) -> CoreSchema:
    """The schema of a type with `parse` and `__str__`: configuration and etcd hold its values as text."""
    from pydantic_core import core_schema  # noqa: PLC0415 - as above

    def validate(value: object) -> object:
        return value if isinstance(value, kind) else kind.parse(str(value))

    return core_schema.no_info_plain_validator_function(
        validate, serialization=core_schema.plain_serializer_function_ser_schema(str)
    )
