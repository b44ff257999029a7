"""The thread that writes beside those who gather, as a worker has one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

BESIDE = ThreadPoolExecutor(1)
