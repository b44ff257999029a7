"""`Layout`: the only module that knows the keys in etcd and the encoding of their values. Pure.

    /sluice/<cluster>/
        nodes/<node>                                leased
        owner/<lease>                               leased
        resign                                      leased
        revoked/<node>/<attempt>                    leased
        changefeeds/<id>/info
                         status
                         barrier
                         ddl/<position>
                         schema/<table>
                         assignment/<node>/<part>
                         snapshot/<table>
                         snapshot/<table>/<part>
                         move/<table>
                         straggler/<table>
                         request/<table>
                         repair/<table>
                         skip/<position>
                         rows
                         sync
                         sync-now
                         verified
        ~position/<id>/<node>
                       <node>/<part>
        ~~history/<id>/<kind>/<time>                leased, once the changefeed is removed
        ~~large/<id>/<digest>-<bytes>/<piece>

**Apart.** The reports of the nodes change ten times a second while rows flow, and only the owner needs them all. They stand behind all other
keys (`~` does), so a node can mirror the rest as one range (`Mirror`). What stands behind `~~` no node mirrors.

A value is a JSON object: the fields of its record, and the version of its format, such as `"v": 1`. So `etcdctl get` shows readable
text. A reader ignores fields that it does not know. A newer `v` is an error. A large document of a record may stand beside it
(`large_values.py`).

**Groups.** Keys with one parent (`.../schema/`) are a group. The mirror copies, and readers read, whole groups.

**DDL keys sort in position order**: the cluster time as 16 hex digits, then the token. `Position(T)` is a prefix of `Position(T, token)`
and sorts before it, and hex tokens of one version sort in stream order, as positions do.

**A barrier's held tables are not written**: they follow from the open DDLs, which are in etcd before a barrier passes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from pydantic import TypeAdapter, ValidationError

from changefeed.documents.document import REFERENCE, Document
from changefeed.errors import ConfigurationError, InvariantError, RecordUnreadable
from changefeed.position import Position
from changefeed.records.ddl import Barrier
from changefeed.records.node import NodeId
from changefeed.records.requests import ChangefeedId
from changefeed.table import TableId, TableName
from coordination.etcd.protocol import KeyValue

FORMAT = 1
"""Of all records. A release that changes it reads the one before, too."""

K = TypeVar("K")
T = TypeVar("T")

_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """The node that an owner key belongs to."""

    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class ResignRequest:
    """A user's request that the owner of this epoch resigns. Its key has the owner's lease and is deleted with it."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedChangefeed:
    """A user has removed a changefeed of this id, and none has been created since. So what creates changefeeds by itself leaves it."""

    at: datetime


def _value(name: str) -> Callable[[Layout, ChangefeedId], str]:
    """The key of one value of a changefeed."""
    return lru_cache(1_000)(lambda layout, feed: f"{layout.changefeed(feed)}{name}")


def _group(
    name: str, place: Callable[[K], str]
) -> tuple[Callable[[Layout, ChangefeedId], str], Callable[[Layout, ChangefeedId, K], str]]:
    """A group of a changefeed, and a key in it."""
    group = _value(f"{name}/")
    return group, lambda layout, feed, key: group(layout, feed) + place(key)


def _place(position: Position) -> str:
    token = f".{position.token}" if position.token else ""
    return f"{position.ts.to_int():016x}{token}"


def _of_table(table: TableId) -> str:
    return _quote(table)


def _of_name(name: TableName) -> str:
    return _quote(str(name))


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one cluster. Names of groups end with a slash, keys do not."""

    cluster: str

    @property
    def root(self) -> str:
        return f"/sluice/{_quote(self.cluster)}/"

    @property
    def nodes(self) -> str:
        return f"{self.root}nodes/"

    def node(self, node: NodeId) -> str:
        return self.nodes + _quote(node)

    @property
    def owners(self) -> str:
        return f"{self.root}owner/"

    def owner(self, lease: int) -> str:
        """Fixed width, so that no owner key is a prefix of another."""
        return f"{self.owners}{lease:016x}"

    @property
    def resign(self) -> str:
        return f"{self.root}resign"

    @property
    def write_probe(self) -> str:
        """Never created: the write that tests whether etcd accepts writes changes nothing (`write_health`)."""
        return f"{self.root}write-probe"

    def removed(self, id: ChangefeedId) -> str:
        """Outside the changefeeds: it outlives its own."""
        return f"{self.root}removed/{_quote(id)}"

    def revoked(self, node: NodeId, attempt: int) -> str:
        """Outside the changefeeds: a task of a removed changefeed must stay revoked when a new changefeed takes its name."""
        return f"{self.root}revoked/{_quote(node)}/{attempt}"

    @property
    def changefeeds(self) -> str:
        return f"{self.root}changefeeds/"

    def changefeed(self, id: ChangefeedId) -> str:
        return f"{self.changefeeds}{_quote(id)}/"

    info = _value("info")
    status = _value("status")
    barrier = _value("barrier")
    rows = _value("rows")
    """The row counts of nodes that are gone."""
    principals = _value("principals")
    """The users and roles that have been written to the target."""
    sync = _value("sync")
    """The newest sync point."""
    sync_request = _value("sync-now")
    """A user wants a sync point now."""
    verified = _value("verified")
    """What continuous verification has found."""
    ddls, ddl = _group("ddl", _place)
    schemas, schema = _group("schema", _of_table)
    copies, copy = _group("snapshot", _of_table)
    moves, move = _group("move", _of_table)
    stragglers, straggler = _group("straggler", _of_table)
    requests, request = _group("request", _of_table)
    repairs, repair = _group("repair", _of_table)
    skips, skip = _group("skip", _place)
    renames, rename = _group("rename", _of_name)
    """The renames of the target's tables for changed routes, while these are carried out."""

    def copy_parts(self, id: ChangefeedId, table: TableId) -> str:
        return f"{self.copy(id, table)}/"

    def copy_part(self, id: ChangefeedId, table: TableId, part: int) -> str:
        return f"{self.copy_parts(id, table)}{part:04x}"

    def assignments(self, id: ChangefeedId) -> str:
        """Not a group itself: each node's assignment is one."""
        return f"{self.changefeed(id)}assignment/"

    def assignment(self, id: ChangefeedId, node: NodeId) -> str:
        return f"{self.assignments(id)}{_quote(node)}/"

    @property
    def apart(self) -> str:
        """All keys from this one on are mirrored only where they are needed."""
        return f"{self.root}~"

    @property
    def unmirrored(self) -> str:
        """All keys from this one on are read one by one."""
        return f"{self.root}~~"

    def large(self, id: ChangefeedId) -> str:
        return f"{self.unmirrored}large/{_quote(id)}/"

    def histories(self, id: ChangefeedId) -> str:
        """Outside the changefeeds: it outlives its own."""
        return f"{self.unmirrored}history/{_quote(id)}/"

    def history(self, id: ChangefeedId, kind: str) -> str:
        return f"{self.histories(id)}{kind}/"

    def large_beside(self, key: str) -> str:
        """The group of what the record under a key of a changefeed refers to."""
        return self.large(ChangefeedId(child(key, self.changefeeds)))

    def positions(self, id: ChangefeedId) -> str:
        return f"{self.apart}position/{_quote(id)}/"

    def position(self, id: ChangefeedId, node: NodeId) -> str:
        return self.positions(id) + _quote(node)


def child(key: str, group: str) -> str:
    """The node, table or changefeed in a key below a group."""
    return unquote(key[len(group) :].partition("/")[0])


def encode(record: object, large: Callable[[Document], str | None] | None = None) -> bytes:
    """The same record gives the same bytes in every process, since sets are sorted. `large`: the names of documents that the record refers to."""
    kind: type[Any] = type(record)

    def written(document: Document) -> object:
        name = large(document) if large is not None else None
        return document.written() if name is None else {REFERENCE: name}

    fields = _adapter(kind).dump_python(record, exclude_unset=True, context=written if large is not None else None)
    if kind is Barrier:
        del fields["held"]
    return json.dumps({"v": FORMAT, **fields}, default=_plain, ensure_ascii=False, separators=(",", ":")).encode()


def decode(kind: type[T], kv: KeyValue, large: Callable[[str], Document] | None = None) -> T:
    """`large`: reads a document that the record refers to."""
    try:
        fields = json.loads(kv.value)
        version = fields.pop("v")
    except (ValueError, AttributeError, KeyError, TypeError):
        raise RecordUnreadable(
            f'{kv.key}: expected a JSON object with a version "v", found {len(kv.value)} bytes of something else'
        ) from None
    if version != FORMAT:
        raise RecordUnreadable(f"{kv.key}: written in format {version!r}, this node reads {FORMAT}; upgrade this node")
    if large is not None and REFERENCE.encode() in kv.value:
        fields = _restored(fields, large)
    try:
        record: T = _adapter(kind).validate_python(fields)
    except ValidationError as error:
        problems = _problems(error)
        raise RecordUnreadable(f"{kv.key}: not a {kind.__name__}: {'; '.join(problems)}", problems) from None
    return record


def _restored(value: Any, large: Callable[[str], Document]) -> Any:
    if isinstance(value, dict):
        if value.keys() == {REFERENCE}:
            return large(value[REFERENCE])
        return {name: _restored(each, large) for name, each in value.items()}
    return [_restored(each, large) for each in value] if isinstance(value, list) else value


def readable(key: str, record: object) -> bytes:
    """The value to write. Refused is what nobody could read afterwards: a record that was changed field by field is validated here."""
    kind, value = type(record), encode(record)
    try:
        read = decode(kind, KeyValue(key=key, value=value, create_rev=0, mod_rev=0))
    except RecordUnreadable as error:
        raise ConfigurationError(error.problems or [str(error)]) from None
    if read != record:
        raise InvariantError(f"{key}: expected to read the {kind.__name__} that is written, observed another one")
    return value


def _problems(error: ValidationError) -> list[str]:
    """Without values: the record of a changefeed contains connection strings."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [f"{'.'.join(map(str, each['loc']))}: {each['msg'].removeprefix('Value error, ')}" for each in found]


def _plain(value: object) -> object:
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise InvariantError(f"a record holds {value!r}, which has no form in JSON")


@lru_cache(maxsize=65_536)
def _quote(name: str) -> str:
    return quote(name, safe=":")
