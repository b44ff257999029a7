from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, count

import pytest

from devstack.ports import free_port, taken


@pytest.fixture
def drawn_elsewhere() -> Iterator[int]:
    """A free port that another process has drawn, for a server that does not run at the moment."""
    code = "from devstack.ports import free_port; print(free_port(), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


def test_a_port_that_another_process_has_drawn_is_not_drawn_while_it_lives(
    drawn_elsewhere: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposed = chain([drawn_elsewhere], count(drawn_elsewhere + 1))
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda *_: next(proposed))

    port = free_port()

    assert port != drawn_elsewhere
    assert not taken(drawn_elsewhere)


def test_no_port_is_drawn_twice() -> None:
    assert len({free_port() for _ in range(50)}) == 50
