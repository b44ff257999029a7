"""`TopicRule`: in which topic the rows of some tables are, and what decides their partitions. Pure.

    topics=shop.orders:orders:table      all rows of shop.orders in the topic orders, in one partition
    topics=crm.*:{prefix}.crm            those of all tables of crm in one topic, each row's partition by its _id

Names are those of the messages, which are after `routes`. The first rule that matches decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from changefeed.config.options import Mistake, shown
from changefeed.config.tables.pattern import EVERYTHING, TablePattern

_SIGNS = r"(?:[A-Za-z0-9._-]|\{prefix\}|\{db\}|\{coll\})+"


class PartitionBy(StrEnum):
    KEY = "key"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class TopicRule:
    topic: str
    """With {prefix}, {db} and {coll}."""
    partition_by: PartitionBy
    tables: TablePattern = EVERYTHING

    @classmethod
    def parse(cls, text: str) -> TopicRule:
        found = re.fullmatch(f"(.+?):({_SIGNS})(?::({'|'.join(PartitionBy)}))?", text, re.DOTALL)
        if found is None:
            raise Mistake(
                f"found topics={shown(text)}; write TABLES:TOPIC or TABLES:TOPIC:table, for example topics=shop.*:{{prefix}}.shop, "
                "once for each group of tables"
            )
        tables = TablePattern.parse(found[1])
        if tables.negated:
            raise Mistake(f"found topics={shown(text)}; the first rule that matches decides, so write what they match")
        return cls(found[2], PartitionBy(found[3] or PartitionBy.KEY), tables)

    @property
    def of_one_table(self) -> bool:
        """Whether no two tables share a topic, but for signs that a topic may not have."""
        return "{db}" in self.topic and "{coll}" in self.topic


def parse_topic(value: str) -> str:
    if not re.fullmatch(_SIGNS, value):
        raise Mistake(
            f"found topic={value}; write a name of letters, digits, '.', '_' and '-' with {{prefix}}, {{db}} and {{coll}} in it, for example "
            f"{{prefix}}.{{db}}.{{coll}}, or {{prefix}}.all for one topic"
        )
    return value
