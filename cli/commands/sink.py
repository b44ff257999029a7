"""`sluice sink`: where a changefeed can write to."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.config.sinks.message_options import SinkOption
from changefeed.config.sinks.sink_traits import SINKS
from cli.command import OutputOption, reported
from cli.groups import examples
from cli.output import Output, print_document, print_facts, print_line, print_rows
from cli.tables import Column

_OPTIONS: Sequence[Column] = (
    Column("  OPTION", lambda option: f"  {option.name}"),
    Column("DEFAULT", lambda option: option.default),
    Column("VALUES", lambda option: option.values, text=True),
    Column("MEANING", lambda option: option.about, text=True),
)


@examples("sluice sink list", "sluice sink list -o json")
def list_(*, output: OutputOption = Output.TABLE) -> None:
    """List the kinds of sinks and the options of their URIs.

    No node is needed.
    """
    with reported():
        if output is Output.NAME:
            for sink in SINKS.values():
                print_line(sink.uri)
            return
        if not output.for_people:
            print_document(
                [
                    {"uri": sink.uri, "about": sink.about, "options": [_told(each) for each in sink.options]}
                    for sink in SINKS.values()
                ],
                output,
            )
            return
        for sink in SINKS.values():
            print_facts([(sink.uri, sink.about)])
            if sink.options:
                print_rows(sink.options, _OPTIONS, output)
            print_line("")


def _told(option: SinkOption) -> dict[str, str]:
    return {"name": option.name, "values": option.values, "default": option.default, "about": option.about}
