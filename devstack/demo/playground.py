"""`keep`: runs the stack with one Sluice node, to try commands on it."""

from __future__ import annotations

import signal
import threading

from rich.console import Console

from devstack.node import Node
from devstack.stack import DevStack

_COMMANDS = """
In another terminal, in this directory:

    source .venv/bin/activate
    export SLUICE_SERVER={server}

Insert documents at the source, replicate its database `shop`, and watch (Ctrl-C ends it):

    python -c "from pymongo import MongoClient as C; C('{source}').shop.orders.insert_many([{{'n': n}} for n in range(1000)])"
    sluice changefeed create --id play --source '{source}' --sink '{target}' --start initial --tables 'shop.*'
    sluice changefeed watch play

Create an index at the source, then check the result:

    python -c "from pymongo import MongoClient as C; C('{source}').shop.orders.create_index('n')"
    sluice table list play
    sluice ddl list play
    sluice verify play
"""


def keep(console: Console) -> None:
    """Runs until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    console.print("Starting etcd, a source, a target and one Sluice node ...")
    with DevStack() as stack:
        directory, log = stack.directory / "node", stack.directory / "log" / "node.log"
        with Node("play", stack.etcd_endpoint, directory, log) as node:
            addresses = {
                "source": stack.source_uri,
                "target": stack.target_uri,
                "etcd": stack.etcd_endpoint,
                "node": node.address,
                "http": node.http,
                "logs": str(log.parent),
            }
            for name, value in addresses.items():
                console.print(f"{name:<8}{value}", highlight=False, soft_wrap=True)
            commands = _COMMANDS.format(server=node.address, source=stack.source_uri, target=stack.target_uri)
            console.print(commands, highlight=False, soft_wrap=True, markup=False)
            console.print("Running until Ctrl-C.")
            stopped.wait()
