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


def test_a_name_cannot_draw_on_the_terminal_of_who_reads_the_log() -> None:
    program = (
        "import structlog; from credentials import logging; logging.set_up(logging.LogFormat.CONSOLE)\n"
        "structlog.get_logger().info('table_stopped', table='shop.\\x1b[2J', other='a\\nERROR all is lost')"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    [line] = run.stderr.splitlines()
    assert "\x1b" not in line
    assert r"table=shop.\u001b[2J" in line
    assert r"other='a\nERROR all is lost'" in line


def test_modules_have_levels_that_change_while_they_run() -> None:
    program = """
import sys, types
import structlog
from credentials import logging
from changefeed.errors import ConfigurationError

logging.set_up(logging.LogFormat.JSON)
for name in ("owner.ddl.barrier", "owner.decide", "sink.rows"):
    sys.modules[name] = types.ModuleType(name)
    exec("import structlog\\nlog = structlog.get_logger().bind(x=1)\\ndef say():\\n for level in ('debug', 'info', 'warning'):\\n  getattr(log, level)(__name__)", sys.modules[name].__dict__)
def all(): [sys.modules[name].say() for name in ("owner.ddl.barrier", "owner.decide", "sink.rows")]
for wanted in ({}, {"owner": "warning", "owner.ddl": "debug"}, {"owner": "", "": "error"}, {"owner.ddl": ""}):
    logging.set_levels(wanted)
    print("-", logging.levels())
    before = len(logging.newest_lines())
    all()
    print(*[line.split('"event": "')[1].split('"')[0] + ":" + line.split('"level": "')[1][0] for line in logging.newest_lines()[before:]])
for wrong in ({"ower": "debug"}, {"owner": "loud"}):
    try: logging.set_levels(wrong)
    except ConfigurationError as error: print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    every = "owner.ddl.barrier:i owner.ddl.barrier:w owner.decide:i owner.decide:w sink.rows:i sink.rows:w"
    assert run.stdout.splitlines()[:8] == [
        "- {'': 'info'}",
        every,
        "- {'': 'info', 'owner': 'warning', 'owner.ddl': 'debug'}",
        "owner.ddl.barrier:d owner.ddl.barrier:i owner.ddl.barrier:w owner.decide:w sink.rows:i sink.rows:w",
        "- {'': 'error', 'owner.ddl': 'debug'}",
        "owner.ddl.barrier:d owner.ddl.barrier:i owner.ddl.barrier:w",
        "- {'': 'error'}",
        "",
    ]
    assert [line.partition(";")[0] for line in run.stdout.splitlines()[8:]] == [
        "found the module 'ower'",
        "found the level 'loud'",
    ]
