"""`Position`, `Window`: they stand with those who read a changefeed, who have nothing else of this room. Pure."""

from __future__ import annotations

from sluice_client.position import Position, Window

__all__ = ["Position", "Window"]
