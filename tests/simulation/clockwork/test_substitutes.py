"""A simulation runs in one thread. What other threads of the process do meanwhile is not simulated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.simulation.clockwork.machine import Machine
from tests.simulation.clockwork.substitutes import installed, sleep


def test_a_thread_that_an_earlier_test_has_left_sleeps_in_real_time() -> None:
    """A stall watch does, when a test of real tasks has run before in the process: `sleep` stands in the product's modules instead of the real one."""
    with ThreadPoolExecutor(1) as threads, installed(Machine(1)):
        assert threads.submit(sleep, 0.001).result(10) is None
