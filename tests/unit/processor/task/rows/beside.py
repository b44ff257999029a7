"""The thread that writes while others gather rows, as in a worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

BESIDE = ThreadPoolExecutor(1)
