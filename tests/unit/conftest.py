"""No order between files: what a module of tests does to its process is undone when the module ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest
import structlog

from credentials import redaction

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(scope="module", autouse=True)
def process_as_it_was() -> Iterator[None]:
    """The environment, signals, the log, hooks of the interpreter, Spark's task, and the secrets that texts are searched for."""
    environment, handlers = dict(os.environ), {number: signal.getsignal(number) for number in _SIGNALS}
    log, shown, died = structlog.get_config(), warnings.showwarning, threading.excepthook
    secrets = list(redaction._secrets)
    yield
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    structlog.configure(**log)
    warnings.showwarning, threading.excepthook = shown, died
    if (spark := sys.modules.get("pyspark.taskcontext")) is not None:
        spark.TaskContext._taskContext = None
    redaction.reveal(*(redaction._secrets.keys() - set(secrets)))
    assert list(redaction._secrets) == secrets
