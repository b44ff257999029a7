"""What a user may write, and how each mistake is answered."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import yaml

from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration, OnDivergence, OrderBy, Ttl, UnsupportedDdl
from changefeed.config.tables.pattern import TablePattern
from changefeed.config.written_values import Start
from changefeed.errors import ConfigurationError
from changefeed.event import DdlType, RowType
from changefeed.table import TableName

REQUIRED = {"id": "orders-to-dr", "source": "mongodb://db1.example", "sink": "mongodb://dr1.example"}

EVERY_KEY = """
id: orders-to-dr
source: mongodb://reader:${env:SOURCE_PASSWORD}@db1.example/?replicaSet=rs0
sink: mongodb://writer:${file:/run/secrets/dr}@dr1.example
start: 1795224774.10
target: 2026-12-01T00:00:00Z
filter:
  tables: ["shop.*", "!shop.tmp_*"]
  events:
    - tables: [shop.audit]
      ignore: [delete, dropIndexes]
      ignore_where: {insert: {level: debug, at: {$lt: {$date: "2026-01-01T00:00:00Z"}}}, update_new: {n: {$gt: 1.5}}}
routes: [{from: "shop.*", to: "shop_dr.*"}]
ddl: {unsupported: skip, async_indexes: false, ttl: copied}
on_divergence: fail
dead_letter: sluice.rejected
pipeline: {parallelism: 8, order_by: table, max_lag_batch: 128MiB, pre_images: [shop.orders]}
"""


def test_every_key_arrives_where_it_belongs() -> None:
    read = Configuration.from_yaml(EVERY_KEY)
    (rule,) = read.filter.events

    assert read.id == "orders-to-dr"
    assert read.start == ClusterTime(1795224774, 10)
    assert read.target == ClusterTime.from_iso("2026-12-01T00:00:00Z")
    assert read.filter.tables == (TablePattern("shop", "*"), TablePattern("shop", "tmp_*", negated=True))
    assert rule.ignore == (RowType.DELETE, DdlType.DROP_INDEXES)
    assert rule.ignore_where is not None
    assert rule.ignore_where.insert is not None
    assert rule.ignore_where.insert.accepts({"level": "debug", "at": datetime(2025, 5, 5, tzinfo=UTC)})
    assert read.routes.target(TableName("shop", "orders")) == TableName("shop_dr", "orders")
    assert (read.ddl.unsupported, read.ddl.async_indexes, read.ddl.ttl) == (UnsupportedDdl.SKIP, False, Ttl.COPIED)
    assert read.on_divergence is OnDivergence.FAIL
    assert read.dead_letter == TableName("sluice", "rejected")
    assert read.pipeline.parallelism == 8
    assert read.pipeline.order_by is OrderBy.TABLE
    assert read.pipeline.max_lag_batch == 128 * 1024 * 1024
    assert read.pipeline.wants_pre_images(TableName("shop", "orders"))
    assert not read.pipeline.wants_pre_images(TableName("shop", "items"))


def test_the_defaults_copy_everything_but_system_databases_and_follow_it() -> None:
    read = Configuration.parse(REQUIRED)

    assert read.start is Start.INITIAL
    assert read.target is None
    assert read.filter.wants_table(TableName("shop", "orders"))
    assert not read.filter.wants_table(TableName("config", "chunks"))
    assert read.routes.target(TableName("shop", "orders")) == TableName("shop", "orders")
    assert (read.ddl.unsupported, read.ddl.async_indexes, read.ddl.ttl) == (UnsupportedDdl.FAIL, True, Ttl.DEFERRED)
    assert read.on_divergence is OnDivergence.REPAIR
    assert read.dead_letter is None
    assert (read.pipeline.parallelism, read.pipeline.order_by) == (4, OrderBy.AUTO)
    assert read.pipeline.max_lag_batch == 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("initial", Start.INITIAL),
        ("now", Start.NOW),
        ("2026-11-21T00:00:00Z", ClusterTime(1795219200, 0)),
        ("2026-11-21T02:00:00+02:00", ClusterTime(1795219200, 0)),
        ("1795224774.9", ClusterTime(1795224774, 9)),
        ("1795224774.90", ClusterTime(1795224774, 90)),
        ("'1795224774.9'", ClusterTime(1795224774, 9)),
    ],
)
def test_start_is_a_word_or_a_time_quoted_or_not(written: str, start: Start | ClusterTime) -> None:
    text = yaml.safe_dump(REQUIRED) + f"start: {written}\n"

    assert Configuration.from_yaml(text).start == start


@pytest.mark.parametrize(
    ("written", "size"),
    [("64MiB", 64 << 20), ("1GiB", 1 << 30), ("2048 KiB", 2 << 20), ("5MB", 5_000_000), (1048576, 1 << 20)],
)
def test_sizes_have_units(written: str | int, size: int) -> None:
    assert Configuration.parse(REQUIRED | {"pipeline": {"max_lag_batch": written}}).pipeline.max_lag_batch == size


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("source", "mongodb://reader:hunter2@db1@example"),
        ("source", "mongodb://reader:hunter2"),
        ("source", ["mongodb://reader:hunter2@db1.example"]),
        ("id", "mongodb://reader:hunter2@db1.example"),
        ("password", "hunter2"),
        ("on_divergence", "mongodb://reader:hunter2@db1.example"),
        ("filter", {"tables": ["mongodb://reader:hunter2@db1.example"]}),
        ("routes", [{"from": "mongodb://reader:hunter2@db1.example", "to": "!mongodb://hunter2.x"}]),
    ],
)
def test_no_message_repeats_a_password_wherever_it_was_written(field: str, value: object) -> None:
    fields = REQUIRED | {field: value}
    try:
        said = str(Configuration.parse(fields))
    except ConfigurationError as error:
        said = str(error)

    assert "hunter2" not in said


def test_what_is_shown_has_no_credentials_and_what_is_stored_has_them_as_written() -> None:
    inline = "mongodb://reader:hunter2@db1.example/?replicaSet=rs0"
    read = Configuration.parse(REQUIRED | {"source": inline})

    assert read.public()["source"] == "mongodb://***@db1.example/"
    assert "hunter2" not in f"{read} {read!r} {read.public()}"
    assert Configuration.parse(read.model_dump(mode="json", exclude_none=True)).source.reference == inline


def test_what_is_exported_is_taken_back_and_has_no_secret() -> None:
    written = REQUIRED | {
        "source": "mongodb://reader:hunter2@db1.example/?replicaSet=rs0",
        "filter": {"tables": ["shop.*"]},
        "copy_limit": "20MB/s",
        "pipeline": {"parallelism": 9},
        "columns": [{"tables": ["shop.users"], "mask": {"name": "***"}, "hash": ["mail"], "hash_key": "${env:KEY}"}],
    }
    read = Configuration.parse(written)
    text, variables = read.exported()
    again = Configuration.from_yaml(text)
    name = f"SLUICE_{read.id.upper().replace('-', '_')}_SOURCE_PASSWORD"
    assert variables == [name]
    assert again.source.reference == f"mongodb://reader:${{env:{name}}}@db1.example/?replicaSet=rs0"
    assert again.model_copy(update={"source": read.source}) == read
    assert again.exported() == (text, [])
