"""`keep`: runs the stack with one Sluice node, to try commands on it."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from rich.console import Console

from devstack.node import Node
from devstack.stack import DevStack

_COMMANDS = """
In another terminal, in this directory:

    source .venv/bin/activate
    export SLUICE_SERVER={server}
    export SOURCE='{source}'
    export TARGET='{target}'

docs/tutorial.md goes on from here, for fifteen minutes.
"""


def keep(data: Path | None = None) -> None:
    """Runs until Ctrl-C or SIGTERM. With `data`, data and logs stay there, and the next start goes on with them."""
    console = Console()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    console.print("Starting etcd, a source, a target and one Sluice node ...")
    with DevStack(data.expanduser().absolute() if data else None) as stack:
        directory, log = stack.directory / "node", stack.directory / "log" / "node.log"
        with Node("play", stack.etcd_endpoint, directory, log) as node:
            addresses = {
                "source": stack.source_uri,
                "target": stack.target_uri,
                "etcd": stack.etcd_endpoint,
                "node": node.address,
                "http": node.http,
                "console": node.console,
                "logs": str(log.parent),
            }
            for name, value in addresses.items():
                console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)
            commands = _COMMANDS.format(server=node.address, source=stack.source_uri, target=stack.target_uri)
            console.print(commands, highlight=False, soft_wrap=True, markup=False)
            console.print("Running until Ctrl-C.")
            stopped.wait()
