"""When the broadcasts of contexts and of their bases are made, read and destroyed."""

from __future__ import annotations

from typing import Any, cast

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.configuration import Configuration
from changefeed.position import Position
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName, TableSchema
from coordination.etcd.protocol import EtcdConfig
from coordination.task_fence import Fence
from credentials.secret_files import SecretFiles
from processor.spark.pipeline import SharedBase, SharedContext
from processor.spark.runner import SparkRunner
from processor.task.job import JobContext, TableSet
from schema_store.versions import SchemaVersions

A = TableId("a" * 32)


class Broadcasts:
    """In place of a `SparkRunner`: what was sent, and what a worker has read or Spark has removed."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def broadcast(self, value: object) -> Sent:
        self.sent.append(Sent(value))
        return self.sent[-1]


class Sent:
    def __init__(self, value: object) -> None:
        self._value = value
        self.read = self.destroyed = 0

    @property
    def value(self) -> object:
        self.read += 1
        return self._value

    def destroy(self, *, blocking: bool) -> None:
        self.destroyed += 1


def context(number: int) -> JobContext:
    schema = TableSchema(id=A, name=TableName("s", "a"), valid_from=Position(ClusterTime(1, 0)))
    return JobContext(
        key=f"k/{number}",
        base_key="k/base",
        changefeed=ChangefeedId("f"),
        configuration=Configuration.parse({"id": "f", "source": "mongodb://a", "sink": "mongodb://b"}),
        info_key="i",
        secret_files=SecretFiles(),
        capture=Capture.OPLOG,
        schemas=SchemaVersions.of([schema]),
        tables=TableSet.of([A]),
        fence=Fence(etcd=EtcdConfig(), node_key="n", epoch=1, status_key="s", run=1),
    )


def through(shared: SharedContext, spark: Broadcasts) -> Any:
    return shared.through(cast("SparkRunner", spark))


def test_a_worker_that_has_the_base_loads_the_rest_only() -> None:
    spark, base = Broadcasts(), SharedBase(context(0).base)
    first, second = (through(SharedContext(context(number), base), spark) for number in (1, 2))
    loaded = first.load({})
    assert second.load({loaded.base_key: loaded.base}) == context(2)
    assert [sent.read for sent in spark.sent] == [1, 1, 1]
    assert loaded == context(1)


def test_a_base_is_destroyed_with_the_last_context_that_may_use_it() -> None:
    spark, base = Broadcasts(), SharedBase(context(0).base)
    contexts = [SharedContext(context(number), base) for number in (1, 2)]
    for shared in contexts:
        through(shared, spark)
    sent, *_ = spark.sent
    contexts[0].close()
    base.release()
    assert not sent.destroyed
    contexts[1].close()
    assert [each.destroyed for each in spark.sent] == [1, 1, 1]


def test_after_a_failure_of_spark_both_parts_are_sent_again() -> None:
    spark = Broadcasts()
    shared = SharedContext(context(1), SharedBase(context(0).base))
    handle = through(shared, spark)
    shared.doubt(handle)
    again = through(shared, spark)
    assert again.base is not handle.base
    assert again.rest is not handle.rest
    assert not any(sent.destroyed for sent in spark.sent)
