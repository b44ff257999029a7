"""The result of a verification, and the two databases it compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from devstack.mongodb.server import Client
from verify.report import Aspect, Report, Result, TableReport, VerifyProgress


@dataclass(slots=True)
class Heard:
    """The report and progress of a verification."""

    tables: list[TableReport] = field(default_factory=list)
    steps: list[VerifyProgress] = field(default_factory=list)

    def progress(self, progress: VerifyProgress) -> None:
        self.steps.append(progress)

    def table(self, report: TableReport) -> None:
        self.tables.append(report)


@dataclass(slots=True)
class Verified:
    report: Report
    heard: Heard

    def table(self, coll: str) -> TableReport:
        (found,) = (table for table in self.report.tables if table.name.coll == coll)
        return found

    def result(self, coll: str, aspect: Aspect) -> Result:
        return self.table(coll).results[aspect]


Verify = Callable[..., Verified]


@dataclass(slots=True)
class Sides:
    """The same database on both servers."""

    database: str
    source_client: Client
    target_client: Client

    def on_both(self, coll: str, documents: list[dict[str, Any]], **options: Any) -> None:
        for client in (self.source_client, self.target_client):
            client[self.database].create_collection(coll, **options)
            if documents:
                client[self.database][coll].insert_many(documents)

    def series_on_both(self, coll: str, measurements: list[dict[str, Any]]) -> None:
        """With equal buckets, as a changefeed writes them: each server would give its own measurements others."""
        self.on_both(coll, [], timeseries={"timeField": "at", "metaField": "m"})
        self.source[coll].insert_many(measurements)
        buckets = self.source[f"system.buckets.{coll}"].with_options(CodecOptions(RawBSONDocument)).find()
        self.target[f"system.buckets.{coll}"].insert_many(list(buckets))

    @property
    def source(self) -> Any:
        return self.source_client[self.database]

    @property
    def target(self) -> Any:
        return self.target_client[self.database]
