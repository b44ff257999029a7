"""`Topics`: the names of a changefeed's topics. Pure.

    {prefix}.{db}.{coll}   rows of a table, and what is said in-band; by the option `topic` others, or one for all
    {prefix}.ddl           each DDL, and the schemas with which tables begin; with `debezium` it is {prefix}
    {prefix}.watermark     compacted
    {prefix}.feed          whose topics these are

A name of MongoDB may have signs that a topic may not have. They become `_`. A table whose topic would be one of Sluice's own gets one with `_`
behind it. Two tables may then share a topic, which is no harm: each message names its table.
"""

from __future__ import annotations

import hashlib
import re

from changefeed.config.sinks.kafka_sink import KafkaSinkOptions
from changefeed.config.sinks.message_options import FormatName
from changefeed.table import TableName

_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 249
_HASH = 16


class Topics:
    def __init__(self, options: KafkaSinkOptions) -> None:
        prefix = options.prefix
        self.ddl = prefix if options.messages.format is FormatName.DEBEZIUM else f"{prefix}.ddl"
        self.watermark = f"{prefix}.watermark"
        self.feed = f"{prefix}.feed"
        self._prefix = prefix
        self._expression = options.topic
        self._known: dict[TableName, str] = {}

    @property
    def own(self) -> tuple[str, ...]:
        """Those that have no rows."""
        return self.feed, self.ddl, self.watermark

    def of(self, table: TableName) -> str:
        """Where the rows of a table go that has this name downstream."""
        found = self._known.get(table)
        if found is None:
            found = self._known[table] = self._named(table)
        return found

    def _named(self, table: TableName) -> str:
        parts = {"prefix": self._prefix, "db": table.db, "coll": table.coll}
        name = _ILLEGAL.sub("_", re.sub(r"\{(prefix|db|coll)\}", lambda match: parts[match[1]], self._expression))
        if name in {*self.own, ".", ".."}:
            name = f"{name}_"
        if len(name) > _LONGEST:
            digest = hashlib.sha256(str(table).encode()).hexdigest()[:_HASH]
            name = f"{name[: _LONGEST - _HASH - 1]}.{digest}"
        return name
