"""What a node writes to standard error."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys, threading, warnings
import structlog
from credentials.redaction import keep_secret
from credentials import logging
from node.configuration import LogFormat

logging.set_up(LogFormat(sys.argv[1]))
keep_secret("sword-fish")
log = structlog.get_logger()

def fail(uri):
    raise ValueError(f"cannot parse {uri}")

try:
    fail("sword-" + "fish")
except ValueError:
    log.exception("it_failed", uri="sword-fish")
unknown = "never-announced-" + "secret"
def broken(text):
    raise RuntimeError("broken")
thread = threading.Thread(target=broken, args=(unknown,), name="t1")
thread.start()
thread.join()
warnings.warn("Unknown option: sword-fish")
"""


@pytest.mark.parametrize("format", ["console", "json"])
def test_no_line_and_no_traceback_shows_a_secret_or_the_value_of_a_variable(format: str) -> None:
    run = subprocess.run([sys.executable, "-c", _PROGRAM, format], capture_output=True, text=True, check=True)

    assert run.stdout == ""
    assert "sword-fish" not in run.stderr
    assert "never-announced-secret" not in run.stderr
    assert "cannot parse ***" in run.stderr
    for event in ("it_failed", "thread_died", "library_warned"):
        assert event in run.stderr
