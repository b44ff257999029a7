"""`SparkQuery`: reads the shop's files as a stream of Spark while the shop is open. At the end Spark's tables are compared with the source's."""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console

from cli.channel import Connection
from devstack.demo.message_places import MessagesInFiles
from devstack.demo.outcome import ShopResult, wait_for_watermark
from devstack.demo.shop import DATABASE, Shop
from devstack.mongodb.server import Client
from pyspark_sluice import latest

_BUSY = "failed to connect back"
"""Spark gives a Python up that has not begun after ten seconds. A query that is started again goes on."""
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)


class SparkQuery:
    def __init__(self, directory: Path, shop: Shop, source: str, messages: MessagesInFiles) -> None:
        self._directory = directory
        self._shop = shop
        self._source = source
        self._messages = messages
        self._closing = threading.Event()
        self._reading = threading.Thread(target=self._read_beside, name="spark", daemon=True)

    def start(self) -> None:
        _session()
        self._reading.start()

    def stop(self) -> None:
        self._closing.set()
        self._reading.join()
        if (session := SparkSession.getActiveSession()) is not None:
            session.stop()

    def read_back(self, connection: Connection, console: Console, changefeed: str) -> ShopResult:  # noqa: ARG002 - no node is asked
        wait_for_watermark(self._messages, self._shop.time())
        self._closing.set()
        self._reading.join()
        batches = self._batches()
        self._read_rest()
        rows = _session().read.parquet(str(self._directory / "rows"))
        console.print(
            f"\nA stream of Spark read {self._messages}: {rows.count():,} changes and schema changes, "
            f"{batches} batches beside the shop, and {self._batches() - batches} from its checkpoint to the end."
        )
        found: dict[str, set[bytes]] = defaultdict(set)
        for row in latest(rows).select("ns", "after_bson").collect():
            found[row.ns.removeprefix(f"{DATABASE}.")].add(bytes(row.after_bson))
        there = self._source_tables()
        differing = sorted(name for name in there.keys() | found.keys() if there.get(name) != found.get(name))
        if differing:
            return ShopResult(identical=False, text=f"The source and Spark's tables differ: {', '.join(differing)}.")
        documents = sum(map(len, there.values()))
        text = f"The source and Spark's tables are identical: {len(there)} tables, {documents:,} documents."
        return ShopResult(identical=True, text=text)

    def _read_beside(self) -> None:
        """Until the shop is closed, and something is read. What went wrong is seen again when the rest is read."""
        while not self._messages.begun():
            if self._closing.wait(0.5):
                return
        while not (self._closing.is_set() and self._batches()):
            query = self._rows().trigger(processingTime="2 seconds").start(str(self._directory / "rows"))
            while query.isActive and not (self._closing.wait(0.5) and self._batches()):
                pass
            query.stop()
            if (problem := query.exception()) is not None and _BUSY not in str(problem):
                return

    def _read_rest(self) -> None:
        query = self._rows().trigger(availableNow=True).start(str(self._directory / "rows"))
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if _BUSY not in str(error):
                raise
            self._read_rest()

    def _rows(self) -> DataStreamWriter:
        rows = _session().readStream.format("sluice").load(self._messages.sink)
        return rows.writeStream.format("parquet").option("checkpointLocation", str(self._directory / "checkpoint"))

    def _batches(self) -> int:
        return len(list((self._directory / "checkpoint" / "commits").glob("[0-9]*")))

    def _source_tables(self) -> dict[str, set[bytes]]:
        with Client(self._source) as client:
            shop: Any = client.get_database(DATABASE, codec_options=_RAW)
            tables = {name: {document.raw for document in shop[name].find()} for name in shop.list_collection_names()}
        return {name: documents for name, documents in tables.items() if documents}


def _session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]").config(map=settings)
    return builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
