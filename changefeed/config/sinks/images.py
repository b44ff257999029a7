"""`Images`: whether messages have the documents as they were before and after each change. Pure."""

from __future__ import annotations

from enum import StrEnum


class Images(StrEnum):
    NONE = "none"
    AVAILABLE = "available"
    """Where the source has them."""
    REQUIRED = "required"
    """A change without one stops its table."""
