"""`Configuration`: what a user writes to describe a changefeed.

    id: orders-to-dr
    source: mongodb://reader:${env:SOURCE_PASSWORD}@db1.example/?replicaSet=rs0
    sink: mongodb://writer:${file:/run/secrets/dr}@dr1.example
    start: initial                   # initial | now | 2026-11-21T00:00:00Z | 1795224774.9
    target: null                     # stop when this time is reached
    filter:
      tables: ["shop.*", "!shop.tmp_*"]
      events: [{tables: [shop.audit], ignore: [delete], ignore_where: {insert: {level: debug}}}]
    routes: [{from: "shop.*", to: "shop_dr.*"}]
    columns: [{tables: [shop.users], drop: [ssn], mask: {name: "***"}, hash: [email], hash_key: "${env:HASH_KEY}"}]
    ddl: {unsupported: fail, async_indexes: true, ttl: deferred}
    capture: auto                    # auto | oplog | change_stream
    on_occupied: refuse              # refuse | drop | keep: tables that the target has before their copy
    shard_target: false              # whether routers of the target shard new tables as the source does
    on_divergence: repair
    on_rejected: dead_letter         # stop_table | dead_letter | stop_changefeed: when the target refuses a row
    dead_letter: sluice.rejected     # where refused rows go; naming it means on_rejected: dead_letter
    copy_limit: 20MB/s               # of all nodes together, changed while it runs; also 5000 docs/s, or both
    apply_limit: null
    delay: null
    sync_points: {every: 60s, keep: 1h}    # null by default: no points at which both sides are known to be equal
    verify: {continuous: false, budget: 16MiB/s}    # whether both sides are compared at each of them, a part in turn
    pipeline: {parallelism: 4, order_by: auto, max_lag_batch: 64MiB, pre_images: [shop.orders]}

All mistakes are reported at once, each with its path. `source` and `sink` are kept as written, with references to credentials
not expanded (`changefeed.config.uri`). `public` leaves credentials out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import yaml
from pydantic import Field, StrictBool, StrictInt, StrictStr, ValidationError, ValidationInfo, field_validator

from changefeed.capture import ASKED_FOR, Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config import yaml_text
from changefeed.config.options import Flag, Mistake, Options, each_once, problems, shown
from changefeed.config.sinks.kafka_options import KafkaSinkOptions
from changefeed.config.sinks.message_options import Images
from changefeed.config.sinks.sink_traits import SINKS, SinkTraits, traits_of
from changefeed.config.sync_options import SyncPointOptions, VerifyOptions
from changefeed.config.tables.column_rules import ColumnRule
from changefeed.config.tables.filter import Filter, series_obstacle
from changefeed.config.tables.pattern import PatternList, TablePattern, literal
from changefeed.config.tables.routes import Routes
from changefeed.config.uri import ConnectionUri, check_scheme, refused_at_source, refused_at_target
from changefeed.config.written_values import TIME_HINT, AskedCapture, Bytes, Limit, Start, StartAt, Time, WrittenDelay
from changefeed.errors import ConfigurationError
from changefeed.event import DdlType
from changefeed.table import TableName


class UnsupportedDdl(StrEnum):
    FAIL = "fail"
    SKIP = "skip"


class Ttl(StrEnum):
    """Expiry at the target could overtake an update that extends a document's life."""

    DEFERRED = "deferred"
    """TTL indexes expire nothing downstream during replication. Cut-over restores their true values."""
    COPIED = "copied"


class OnDivergence(StrEnum):
    REPAIR = "repair"
    STOP_TABLE = "stop_table"
    FAIL = "fail"
    """The changefeed fails."""


class OnOccupied(StrEnum):
    """What happens to a table of the target that has documents before its initial copy."""

    REFUSE = "refuse"
    DROP = "drop"
    KEEP = "keep"
    """Its documents stay. Those that the source has, too, become as they are there."""


class OnRejected(StrEnum):
    """What happens when the target refuses a row because of its content."""

    STOP_TABLE = "stop_table"
    DEAD_LETTER = "dead_letter"
    STOP_CHANGEFEED = "stop_changefeed"


class OrderBy(StrEnum):
    AUTO = "auto"
    ID = "id"
    TABLE = "table"


class DdlOptions(Options):
    unsupported: UnsupportedDdl = UnsupportedDdl.FAIL
    async_indexes: StrictBool = True
    ttl: Ttl = Ttl.DEFERRED


_OF_DOCUMENTS = {"users": "users", "shard_target": "shards", "sync_points": "snapshots to compare with"}
"""Options that mean nothing without what a MongoDB has."""


class PipelineOptions(Options):
    parallelism: StrictInt = Field(4, ge=1, le=1024, description="write a whole number from 1 to 1024")
    order_by: OrderBy = OrderBy.AUTO
    """Which changes stay in order: with `id` those of one document, with `table` all of a table. `auto` chooses by its unique indexes."""
    max_lag_batch: Bytes = 64 << 20
    """How much one window holds at most; `max_lag_events` and `max_lag_seconds` (of the source's time) bound it too."""
    max_lag_events: StrictInt = Field(500_000, ge=1, le=10**9, description="write a whole number from 1 to 1000000000")
    max_lag_seconds: StrictInt = Field(3600, ge=60, le=86400, description="write a whole number from 60 to 86400")
    pre_images: tuple[TablePattern, ...] = Field(
        (), description="write a list of table patterns, for example [shop.orders]"
    )
    """Tables whose changes are read with the documents before and after, so that changes without a common unique value are applied in parallel."""

    @field_validator("pre_images")
    @classmethod
    def _name_each_once(cls, patterns: tuple[TablePattern, ...]) -> tuple[TablePattern, ...]:
        return PatternList(each_once(patterns, "table pattern"))

    def wants_pre_images(self, name: TableName) -> bool:
        return PatternList.of(self.pre_images).means(name)


class Configuration(Options):
    id: Annotated[StrictStr, Flag("Id of the changefeed.", "ID")] = Field(
        pattern=r"^[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*$",
        max_length=64,
        description="write up to 64 letters, digits and single - _ . between them, for example orders-to-dr",
    )
    source: Annotated[ConnectionUri, Flag("URI of the source MongoDB.", "URI")] = Field(
        description="write the URI of the MongoDB to read, for example mongodb://host:27017"
    )
    sink: Annotated[ConnectionUri, Flag("URI of the target.", "URI")] = Field(
        description=f"write a URI that begins with {', '.join(f'{scheme}://' for scheme in SINKS)}"
    )
    start: Annotated[StartAt, Flag("initial, now, a time, or a cluster time.", "START")] = Start.INITIAL
    target: Time | None = Field(None, description=f"write null, {TIME_HINT}")
    filter: Filter = Filter()
    routes: Routes = Field(Routes(), description='write a list of {from: "shop.*", to: "shop_dr.*"}')
    columns: tuple[ColumnRule, ...] = ()
    ddl: DdlOptions = DdlOptions()
    capture: Annotated[
        AskedCapture, Flag("How the source's history is read; auto: the oplog if it can be read.", "|".join(ASKED_FOR))
    ] = Capture.AUTO
    images: Images = Images.NONE
    """Whether messages have the documents before and after each change. Only change streams show them (6.0)."""
    on_occupied: Annotated[
        OnOccupied, Flag("What becomes of a target's table that has documents before its copy.", "|".join(OnOccupied))
    ] = OnOccupied.REFUSE
    on_divergence: OnDivergence = OnDivergence.REPAIR
    on_rejected: OnRejected | None = Field(
        None,
        description="write stop_table, dead_letter or stop_changefeed; by default stop_table, or dead_letter if one is named",
    )
    dead_letter: TableName | None = Field(
        None, description="write null or a table name of the target, for example sluice.rejected"
    )
    shard_target: StrictBool = Field(
        False,
        description="write true or false: whether the target, if it has routers, shards tables as the source does",
    )
    """When they are created there for their copies."""
    users: StrictBool = Field(False, description="write true or false: whether users and roles are replicated")
    copy_limit: Annotated[
        Limit | None, Flag("What initial copies write at most: 20MB/s, 5000 docs/s, or both.", "RATE")
    ] = Field(None, description="write null or a rate such as 20MB/s, 5000 docs/s")
    """Of the documents that initial copies write, on all nodes together."""
    apply_limit: Annotated[
        Limit | None, Flag("What applied changes write at most: 20MB/s, 5000 docs/s, or both.", "RATE")
    ] = Field(None, description="write null or a rate such as 20MB/s, 5000 docs/s")
    """Of the changes that are applied."""
    delay: Annotated[
        WrittenDelay | None,
        Flag("How long the source must have had a change before it is applied: 30s, 15m, 1h.", "DURATION"),
    ] = Field(None, description="write null or a time such as 30s, 15m, 1h, 2d")
    """How long the source must have had a change, by its own clock, before it is applied. Not for initial copies, nor with a `target`."""
    sync_points: SyncPointOptions | None = Field(
        None, description="write null, or how often and for how long: {every: 60s, keep: 1h}"
    )
    """Points at which source and target are known to be equal."""
    verify: VerifyOptions = VerifyOptions()
    pipeline: PipelineOptions = PipelineOptions()
    managed_by: StrictStr | None = Field(
        None,
        pattern=r"^[A-Za-z0-9]+([-_.][A-Za-z0-9]+)*$",
        max_length=128,
        description="write null, or up to 128 letters, digits and single - _ . between them",
    )
    """What declares it and may remove it: `sluice changefeed ensure --prune` removes only what carries its own name."""

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Configuration:
        """From what a user writes. A stored configuration is read by `model_validate`: there the connection refuses a read preference."""
        yaml_text.check_size(fields)
        try:
            configuration = cls.model_validate(fields)
        except ValidationError as error:
            raise ConfigurationError(problems(error, cls)) from None
        looks = [("sink", configuration.sink, refused_at_target)]
        if configuration.capture is Capture.CHANGE_STREAM:
            looks.insert(0, ("source", configuration.source, refused_at_source))
        refused = [f"{name}: {problem}" for name, uri, look in looks if (problem := look(uri.reference)) is not None]
        if (configuration.on_rejected is OnRejected.DEAD_LETTER) > (configuration.dead_letter is not None):
            refused.append(
                "dead_letter: found null, and on_rejected is dead_letter; name a table, for example sluice.rejected"
            )
        if not configuration.sink_traits.keeps_documents:
            refused += [
                f"{name}: a {configuration.sink.scheme} has no {lacking}; leave it out, or name a MongoDB as sink"
                for name, lacking in _OF_DOCUMENTS.items()
                if getattr(configuration, name)
            ]
        refused += configuration.senseless_for_messages()
        if configuration.sync_points is not None:
            refused += configuration.sync_points.obstacles(configuration.delay)
        elif configuration.verify.continuous:
            refused.append(
                "verify.continuous: found true without sync_points, at which both sides are compared; write sync_points: {every: 60s, keep: 1h}, too"
            )
        if refused:
            raise ConfigurationError(refused)
        return configuration

    def series_obstacle(self, name: TableName, capture: Capture) -> str:
        """Why a time series of this name is not replicated. Empty: it is."""
        return series_obstacle(
            self.filter.of(name),
            capture,
            messages=self.sink_traits.keeps_messages,
            columns=bool(self.columns_of(name)),
            shared=self.routes.gathers(name),
        )

    def columns_of(self, name: TableName) -> tuple[ColumnRule, ...]:
        """The rules for the table's fields. Equal rules, and only these, show the same of each row."""
        return tuple(rule.model_copy(update={"tables": ()}) for rule in self.columns if rule.means(name))

    @property
    def sink_traits(self) -> SinkTraits:
        return traits_of(self.sink.scheme)

    def senseless_for_messages(self) -> list[str]:
        """The options that mean nothing, or would make the messages incomplete, if the sink is an event sink."""
        if not self.sink_traits.keeps_messages:
            if self.images is Images.NONE:
                return []
            kind = self.sink.scheme
            return [
                f"images: found {self.images}, and a {kind} has no messages; leave it out, or name a sink of messages"
            ]
        refused = []
        for name, found, meant in (
            ("on_occupied", self.on_occupied, OnOccupied.REFUSE),
            ("on_divergence", self.on_divergence, OnDivergence.REPAIR),
            ("on_rejected", self.on_rejected, None),
            ("ddl.ttl", self.ddl.ttl, Ttl.DEFERRED),
        ):
            if found != meant:
                refused.append(f"{name}: found {found}, which means nothing for a sink of messages; leave it out")
        if self.pipeline.pre_images:
            refused.append(
                "pipeline.pre_images: found table patterns, which mean nothing for a sink of messages; leave it out. Messages with the documents "
                "before and after changes: images: available, or required"
            )
        compacts = self.sink.scheme == "kafka" and KafkaSinkOptions.parse(self.sink.reference).compacts
        if compacts and self.images is not Images.REQUIRED:
            refused.append(
                f"sink: found topic.cleanup.policy with compact and images: {self.images}; the last message of a key may say only what changed: "
                "write images: required, or topic.cleanup.policy=delete"
            )
        for rule in self.filter.events:
            ignored = sorted(kind.value for kind in rule.ignore if isinstance(kind, DdlType))
            if ignored:
                refused.append(
                    f"filter.events: found {', '.join(ignored)} to be ignored; a reader could not tell what became of the tables: leave out the "
                    "tables (filter.tables), or let their DDL be sent"
                )
        return refused

    @property
    def when_rejected(self) -> OnRejected:
        if self.on_rejected is not None:
            return self.on_rejected
        return OnRejected.STOP_TABLE if self.dead_letter is None else OnRejected.DEAD_LETTER

    @classmethod
    def from_yaml(cls, text: str) -> Configuration:
        return cls.parse(yaml_text.read(text))

    def without_credentials(self) -> Configuration:
        return self.model_copy(
            update={"source": self.source.without_credentials(), "sink": self.sink.without_credentials()}
        )

    def public(self) -> dict[str, Any]:
        """Everything but credentials."""
        return self.model_dump(mode="json") | {"source": str(self.source), "sink": str(self.sink)}

    def exported(self) -> tuple[str, list[str]]:
        """As YAML for another create or an update, without what is as by default; and the variables that stand for what was a secret in it."""
        name = re.sub(r"[^A-Z0-9]", "_", f"SLUICE_{self.id}".upper())
        source, sink = self.source.with_references(f"{name}_SOURCE"), self.sink.with_references(f"{name}_SINK")
        fields = {"id": self.id, "source": source.reference, "sink": sink.reference}
        fields |= self.model_dump(mode="json", exclude_defaults=True, exclude={"id", "source", "sink"})
        known = {*self.source.variables, *self.sink.variables}
        added = sorted({*source.variables, *sink.variables} - known)
        return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True), added

    @field_validator("source", mode="before")
    @classmethod
    def _source_is_mongodb(cls, source: object) -> object:
        """Before the URI is read: a list of all schemes would name those of sinks."""
        if isinstance(source, str):
            check_scheme(source, ("mongodb", "mongodb+srv"))
        return source

    @field_validator("sink")
    @classmethod
    def _sink_is_elsewhere(cls, sink: ConnectionUri, info: ValidationInfo) -> ConnectionUri:
        source = info.data.get("source")
        if source is not None and source.hosts & sink.hosts:
            shared = ", ".join(sorted(source.hosts & sink.hosts))
            raise Mistake(
                f"found {shared}, which is the source's too; Sluice would replicate its own writes, name another target"
            )
        return sink

    @field_validator("target")
    @classmethod
    def _target_is_after_start(cls, target: ClusterTime | None, info: ValidationInfo) -> ClusterTime | None:
        start = info.data.get("start")
        if target is not None and isinstance(start, ClusterTime) and target <= start:
            raise Mistake(f"found {target}, which is not after start {start}; write a later time")
        return target

    @field_validator("routes")
    @classmethod
    def _routes_move_wanted_tables(cls, routes: Routes, info: ValidationInfo) -> Routes:
        filter_ = info.data.get("filter")
        for route in routes.root:
            db, coll = literal(route.from_.db), literal(route.from_.coll)
            if filter_ is not None and db and coll and not filter_.wants_table(TableName(db, coll)):
                raise Mistake(
                    f"found a route for {db}.{coll}, which filter.tables leaves out; add the table there or remove the route"
                )
        return routes

    @field_validator("dead_letter", mode="before")
    @classmethod
    def _dead_letter_is_a_table(cls, value: object, info: ValidationInfo) -> object:
        if value is None:
            return None
        try:
            name = TableName.parse(value) if isinstance(value, str) else value
        except ValueError:
            name = None
        if not isinstance(name, TableName) or name.system:
            raise Mistake(
                f"found {shown(value)}; write null or a table name of the target, for example sluice.rejected"
            )
        sink = info.data.get("sink")
        if sink is not None and not traits_of(sink.scheme).keeps_documents:
            kept = "has no tables" if traits_of(sink.scheme).keeps_messages else "keeps nothing"
            raise Mistake(
                f"found a table name; a {sink.scheme}:// sink {kept} and refuses nothing, leave dead_letter out"
            )
        return name
