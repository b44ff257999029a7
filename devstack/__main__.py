"""`python -m devstack`: the commands of the development stack."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from devstack.demo.demo import run
from devstack.demo.there_and_back import run_there_and_back
from devstack.mongodb.release import Mongod
from devstack.pinned_wheel import Unobtainable
from devstack.stack import DevStack

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Real etcd and two MongoDB servers.")


def _print(stack: DevStack) -> None:
    typer.echo(f"source  {stack.source_uri}\ntarget  {stack.target_uri}\netcd    {stack.etcd_endpoint}")


@app.command()
def up(
    data: Annotated[Path | None, typer.Option(help="Directory for data and logs; default: a temporary one.")] = None,
) -> None:
    """Start the stack, print its addresses, and run it until Ctrl-C or SIGTERM."""
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    with DevStack(data.absolute() if data else None) as stack:
        _print(stack)
        typer.echo(f"logs    {stack.directory / 'log'}\nrunning until Ctrl-C")
        stopped.wait()


@app.command()
def fetch() -> None:
    """Fetch the mongod that the environment selects, if it is missing, and print its path."""
    try:
        typer.echo(Mongod.chosen().binary)
    except Unobtainable as missing:
        typer.echo(missing, err=True)
        raise typer.Exit(1) from None


@app.command()
def demo(
    *,
    files: Annotated[bool, typer.Option("--files", help="Into files, from which a target is made at the end.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="The same through topics of Kafka.")] = False,
    spark: Annotated[bool, typer.Option("--spark", help="Into files, which Spark reads as a stream.")] = False,
    cluster: Annotated[bool, typer.Option("--cluster", help="With --files or --kafka: from two shards.")] = False,
    there_and_back: Annotated[
        bool, typer.Option("--return", help="A migration whose users move to the target, and return.")
    ] = False,
) -> None:
    """Replicate a small shop whose schema changes, and compare both sides at the end."""
    if not (run_there_and_back() if there_and_back else run(files=files, kafka=kafka, cluster=cluster, spark=spark)):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
