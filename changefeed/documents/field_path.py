"""`meet`: whether two dotted paths may name a part of one field. Pure."""

from __future__ import annotations


def meet(one: str, other: str) -> bool:
    """Whether one path is the other, or leads through it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
