"""`Configuration`: what a user writes to describe a changefeed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from changefeed.cluster_time import ClusterTime
from changefeed.document import Document
from changefeed.errors import ConfigurationError
from changefeed.table import TableName
from changefeed.uri import ConnectionUri


class Moment(StrEnum):
    INITIAL = "initial"
    NOW = "now"


class OnUnsupportedDdl(StrEnum):
    FAIL = "fail"
    SKIP = "skip"


class Ttl(StrEnum):
    DEFERRED = "deferred"
    COPIED = "copied"


class OnDivergence(StrEnum):
    REPAIR = "repair"
    FAIL = "fail"


class OrderBy(StrEnum):
    AUTO = "auto"
    ID = "id"
    TABLE = "table"


class Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True)


class EventRule(Options):
    tables: tuple[str, ...]
    ignore: tuple[str, ...] = ()
    ignore_where: Mapping[str, Document] = Field(default_factory=dict)


class FilterOptions(Options):
    tables: tuple[str, ...] = ("*.*",)
    events: tuple[EventRule, ...] = ()


class RouteRule(Options):
    from_: str = Field(alias="from")
    to: str


class DdlOptions(Options):
    unsupported: OnUnsupportedDdl = OnUnsupportedDdl.FAIL
    async_indexes: bool = True
    ttl: Ttl = Ttl.DEFERRED
    timeout: timedelta = timedelta(hours=1)


class PipelineOptions(Options):
    parallelism: int = 4
    order_by: OrderBy = OrderBy.AUTO
    max_lag_batch: int = 64 << 20


class Configuration(Options):
    id: str
    source: ConnectionUri
    sink: ConnectionUri
    start: Moment | ClusterTime = Moment.INITIAL
    target: ClusterTime | None = None
    filter: FilterOptions = FilterOptions()
    routes: tuple[RouteRule, ...] = ()
    ddl: DdlOptions = DdlOptions()
    on_divergence: OnDivergence = OnDivergence.REPAIR
    dead_letter: TableName | None = None
    pipeline: PipelineOptions = PipelineOptions()

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Configuration:
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise ConfigurationError([f"{e['loc']}: {e['msg']}" for e in error.errors()]) from None

    @classmethod
    def from_yaml(cls, text: str) -> Configuration:
        return cls.parse(yaml.safe_load(text))
