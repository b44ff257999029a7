"""`serve`: runs a node in the foreground until a signal ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta

import structlog

from credentials import logging
from node.configuration import NodeConfiguration
from node.process import NodeProcess

_AFTER_GRACE = timedelta(seconds=30)
"""The time for steps that cannot be interrupted; after it the process exits at once."""

_log = structlog.get_logger()


def serve(configuration: NodeConfiguration) -> None:
    logging.set_up(configuration.log_format)
    process = NodeProcess(configuration)
    _stop_on_signals(process, configuration.grace + _AFTER_GRACE)
    process.run()


def _stop_on_signals(process: NodeProcess, at_most: timedelta) -> None:
    """The first signal stops gracefully, the second one exits at once. That is safe at any time: a successor continues from the state in etcd."""
    signalled = threading.Event()

    def stop(number: int, _: object) -> None:
        if signalled.is_set():
            os._exit(128 + number)
        signalled.set()
        process.stop()
        timer = threading.Timer(at_most.total_seconds(), _give_up)
        timer.daemon = True
        timer.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _give_up() -> None:
    _log.error("node_did_not_stop_in_time")
    sys.stderr.flush()
    os._exit(1)
