"""`SinkOption`: one option of a sink's URI, in the words of its users. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from changefeed.config.options import Mistake, did_you_mean, shown

E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOption:
    name: str
    values: str
    default: str
    about: str


def one_of(kind: type[E], name: str) -> Callable[[str], E]:
    """Reads an option whose values are few."""

    def read(value: str) -> E:
        if value not in tuple(kind):
            raise Mistake(f"found {name}={value}; allowed are {', '.join(kind)}{did_you_mean(value, kind)}")
        return kind(value)

    return read


def refuse_unknown(name: str, allowed: Sequence[str]) -> None:
    if name not in allowed:
        raise Mistake(f"found the option {shown(name)}; allowed are {', '.join(allowed)}{did_you_mean(name, allowed)}")
