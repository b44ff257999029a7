"""The stack with one Sluice node, kept for playing."""

from __future__ import annotations

import signal
import threading

from rich.console import Console

from devstack.node import Node
from devstack.stack import DevStack

_COMMANDS = """
    export SLUICE_SERVER={server}
    sluice changefeed create --id play --source '{source}' --sink '{target}' --start initial --tables 'shop.*'
    sluice changefeed watch play
    sluice verify play
"""


def keep(console: Console) -> None:
    """Until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    console.print("Starting etcd, a source, a target and one Sluice node ...")
    with DevStack() as stack:
        directory, log = stack.directory / "node", stack.directory / "log" / "node.log"
        with Node("play", stack.etcd_endpoint, directory, log) as node:
            told = {
                "source": stack.source_uri,
                "target": stack.target_uri,
                "etcd": stack.etcd_endpoint,
                "node": node.address,
                "http": node.http,
                "logs": str(log.parent),
            }
            for name, value in told.items():
                console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)
            commands = _COMMANDS.format(server=node.address, source=stack.source_uri, target=stack.target_uri)
            console.print(
                f"\nWrite to the database `shop` of the source, and try:\n{commands}", highlight=False, soft_wrap=True
            )
            console.print("Running until Ctrl-C.")
            stopped.wait()
