"""`sluice server`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from changefeed.errors import ConfigurationError
from cli.command import reported
from cli.flags import Given, options_of
from cli.groups import examples
from cli.output import ExitCode, Failure
from node.configuration import NodeConfiguration


@examples("sluice server --config node.yaml", "sluice server --etcd etcd-1:2379 --roles owner")
@reported()
@options_of(NodeConfiguration)
def server(
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file of the node; flags override it.")] = None,
    given: Given,
) -> None:
    """Run a node.

    It serves the admin API and, depending on its roles, is a candidate for owner and a processor.

    SIGTERM or Ctrl-C hands its tables over and ends the node; a second one ends it at once.
    """
    text = _text(config) if config is not None else None
    try:
        configuration = NodeConfiguration.of(text, given.fields)
    except ConfigurationError as error:
        raise ConfigurationError([given.by_flag(problem) for problem in error.problems]) from None
    from cli.serving import serve  # noqa: PLC0415 - it loads Spark, which takes time and only this command needs

    serve(configuration)


def _text(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(ExitCode.USAGE, f"{config}: cannot be read: {error}") from None
