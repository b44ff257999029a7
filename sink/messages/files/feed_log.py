"""The log of a feed: all files but those with rows. It says whose files these are, what is committed, which DDL there was, and how far it is.

`FeedIdentity`: whose files these are. One changefeed, since one start: restarted, it begins again from nothing, and needs another place.

`FileCommitter`: makes visible what tasks wrote, by one manifest.

    schema versions   put-create, before the manifest that has their first rows
    manifest          log/<node epoch>/<group>/<number>.json, put-create; none of a window without rows
    confirmation      the store is this changefeed's, and not the empty directory that is there without its file system

Nothing says that a window had no rows. So a mark says on how many manifests it rests, and a reader reads them all or finds a gap:

    a node          reports how many manifests it has, with or before the checkpoint that rests on them
    an owner        keeps the highest number of each node that it has seen reported, before it moves the checkpoint in etcd by that report
    a new owner     seals the logs of nodes that are gone before its first mark: what was reported to an earlier owner alone is below a seal

A node's epoch is its own, so nodes never compete for a name. A number that is taken was an earlier try of this node, and the next one is
tried; or the node counts as gone (`FileLeftovers`), and may not commit any more. A crash between two steps leaves versions that nobody
needs, or a manifest whose window is run again: ranges then overlap.

`FileDdlApplier`, `FileMarks`: what the owner writes into a sink of files, DDL and watermarks.

A DDL is one file whose name is its position. However often it is written, by whichever owner, it is the same file with the same content.
A mark says that everything before its position is there. It is true for ever, so a mark of an old owner that comes late does no harm:
a reader takes the highest of the newest ones.

    a table begins again    its schema, then the DDL

Nothing else need say that schema: a copy that is interrupted at once begins at the interruption. A crash between the two leaves a schema
that nobody needs.

`FileLeftovers`: removes what nodes that are gone wrote and never committed, and sums up what all have committed.

    seal      log/<epoch>/<group>/<number>.json, by put-create behind the node's last manifest: under this epoch nothing can be committed any more.
              A new owner does it before all else
    remove    each of its data files that no manifest of this epoch names
    sum up    each complete group of manifests, and the last one of a node that is gone, by put-create: whoever does it writes the same

A node that lives on without its session finds the seal when it commits, and is refused; its window is run again by another node. So it is
safe to be wrong about who is gone. A task of such a node may still write files; they are removed in the next owner's term.

The manifests are read by their numbers, and not as a listing shows them, because a listing may be old on a network file system. A
put-create is not: numbers have no holes, so each one below the seal is a manifest that must be there.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from changefeed.cluster_time import ClusterTime
from changefeed.errors import DdlAmbiguous, SinkRefused, SinkUnavailable, TargetOccupied
from changefeed.position import Position
from changefeed.records.ddl import DdlRecord, Observation
from changefeed.table import TableId, TableKind, TableName, TableSchema
from sink.ddl import BeginAgain, CreateTable, DdlApplier, DownstreamDdl, Skip
from sink.messages.files.store import Store, create_same
from sink.messages.message import (
    EMPTIED,
    Message,
    copy_end_message,
    ddl_message,
    emptied_message,
    schema_message,
    watermark_message,
)
from sink.receipt import Commit, CommitCounts, CopyEnd
from sink.sink import NamedTables
from sluice_client.feed_reader import VERSION
from sluice_client.manifest import (
    CHECKPOINT,
    DATA,
    DDL,
    GROUP,
    IDENTITY,
    LOG,
    GroupSum,
    Manifest,
    copied_name,
    group_folder,
    manifest_name,
    number_name,
    number_of,
    place_name,
    schema_name,
    writer_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedIdentity:
    """`life`: differs for each creation and each restart of a changefeed."""

    feed: str
    life: str

    def claim(self, store: Store) -> None:
        """When the changefeed begins. The store is its own from now on, if it was nobody's. Raises if it is another one's."""
        store.check()
        store.create(IDENTITY, self._content)
        self.confirm(store)

    def confirm(self, store: Store) -> None:
        """Raises if this is not the store of this changefeed.

        Where its file system is not mounted there is an empty directory, or none. So whoever writes a file that counts confirms *behind* it,
        before a checkpoint passes it.
        """
        found = store.read(IDENTITY)
        if found is None:
            raise SinkUnavailable(
                f"{store}: expected {IDENTITY} of changefeed {self.feed!r}, found none; {store.if_empty}"
            )
        if found != self._content:
            raise TargetOccupied(
                f"changefeed {self.feed!r}: {store} has the files of {found.decode(errors='replace')}, expected none or "
                f"those of {self._content.decode()}; a changefeed that begins again needs an empty place"
            )

    @property
    def _content(self) -> bytes:
        return json.dumps({"v": VERSION, "feed": self.feed, "life": self.life}).encode()


class FileCommitter:
    def __init__(self, identity: FeedIdentity, store: Store, epoch: int) -> None:
        """`epoch`: the node's."""
        self._identity = identity
        self._store = store
        self._epoch = epoch
        self._lock = threading.Lock()
        self._number: int | None = None
        self._count = 0
        self._described: set[tuple[TableId, Position]] = set()

    def commit(self, commit: Commit) -> None:
        feed = self._identity.feed
        with self._lock:
            for schema, name in commit.tables:
                version = schema.id, schema.valid_from
                if version not in self._described:
                    described = schema_name(schema.id, schema.valid_from)
                    self._store.create(described, schema_message(feed, schema, name).json())
                    self._described.add(version)
            if commit.files or commit.copies:
                self._write(Manifest(feed=feed, ranges=commit.ranges, files=commit.files, copies=commit.copies).json())
            self._confirm()
            self._count = self._number or self._count

    @property
    def committed(self) -> Mapping[int, int]:
        return {self._epoch: self._count}

    def _write(self, manifest: bytes) -> None:
        if self._number is None:
            self._number = _newest_number(self._store, self._epoch)
        while not self._store.create(manifest_name(self._epoch, self._number), manifest):
            self._refuse_sealed(self._number)
            self._number += 1
        self._number += 1

    def _confirm(self) -> None:
        try:
            self._identity.confirm(self._store)
        except SinkUnavailable:
            self._number = None
            self._described.clear()
            raise

    def _refuse_sealed(self, number: int) -> None:
        name = manifest_name(self._epoch, number)
        content = self._store.read(name)
        if content is not None and Manifest.parse(content).sealed:
            raise SinkRefused(
                f"{self._store}/{name}: nothing more is committed, because the node of this epoch counts as gone; "
                f"restart this node if it is not"
            )


def _newest_number(store: Store, epoch: object) -> int:
    """Of those that are listed: there may be more. 0 if there is none."""
    groups = [int(name) for name in store.names(f"{LOG}/{epoch}") if name.isdigit()]
    newest = max(groups, default=0)
    return max(map(number_of, store.names(group_folder(epoch, newest))), default=newest * GROUP)


KEPT_MARKS = 64
_NONE: Mapping[TableId, Position] = MappingProxyType({})
_ANY = CommitCounts()
_ALWAYS = Position(ClusterTime(0, 0))


class FileDdlApplier(DdlApplier):
    """Without a record, `apply` makes the views with which a changefeed starts, and prepares or completes a copy at another sink: here there is
    nothing to prepare.
    """

    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store

    def apply(self, ddl: DownstreamDdl, before: Observation, record: DdlRecord | None = None) -> str:  # noqa: ARG002 - nothing is compared
        if isinstance(ddl, Skip):
            return ddl.note
        if isinstance(ddl, BeginAgain):
            self._describe(ddl.schema, ddl.name)
        message = ddl_message(self._identity.feed, record, ddl) if record is not None else None
        if record is not None and message is not None:
            self._put(f"{DDL}/{place_name(record.position)}.json", message.json())
        if record is None and isinstance(ddl, CreateTable) and ddl.id is not None and "viewOn" in ddl.options.decode():
            view = TableSchema(id=ddl.id, name=ddl.name, kind=TableKind.VIEW, options=ddl.options, valid_from=_ALWAYS)
            self._describe(view, ddl.name)
        return ""

    def _describe(self, schema: TableSchema, name: TableName) -> None:
        message = schema_message(self._identity.feed, schema, name)
        self._store.create(schema_name(schema.id, schema.valid_from), message.json())
        self._identity.confirm(self._store)

    def begin(self, tables: NamedTables) -> None:
        """The windows of a table that is not copied describe it."""
        for schema, name in tables:
            self._describe(schema, name)

    def emptied(self, table: TableId, name: TableName, at: Position) -> None:
        """The table is empty from there, and is copied again."""
        message = emptied_message(self._identity.feed, table, name, at)
        self._put(f"{DDL}/{place_name(at)}.{EMPTIED}.{table}.json", message.json())

    def copied(self, end: CopyEnd) -> None:
        self._store.create(copied_name(end.table, end.start), copy_end_message(self._identity.feed, end).json())
        self._identity.confirm(self._store)

    def _put(self, name: str, content: bytes) -> None:
        same = create_same(self._store, name, content)
        self._identity.confirm(self._store)
        if not same:
            raise DdlAmbiguous(
                f"{self._store}/{name}: expected {content.decode()}, found another DDL of this position; compare the two, "
                f"and remove the file if it is wrong"
            )


class FileMarks:
    """For one owner's term. `mark` is called with rising positions. `behind`: tables that are not as far, each with its own position."""

    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store
        self._number: int | None = None

    def mark(
        self,
        at: Position,
        behind: Mapping[TableId, Position] = _NONE,
        tables: Iterable[TableName] = (),  # noqa: ARG002 - the mark is about all
        committed: CommitCounts = _ANY,
    ) -> None:
        if self._number is None:
            self._identity.confirm(self._store)
            self._number = max((number_of(name) + 1 for name in self._store.names(CHECKPOINT)), default=0)
        rests_on = {
            "logs": {str(epoch): count for epoch, count in sorted(committed.counts.items())},
            "ended": committed.ended,
        }
        content = Message({**watermark_message(self._identity.feed, at, behind).fields, **rests_on}).json()
        while not self._store.create(f"{CHECKPOINT}/{number_name(self._number)}", content):
            self._number += 1
        self._identity.confirm(self._store)
        if self._number >= KEPT_MARKS:
            self._store.remove(f"{CHECKPOINT}/{number_name(self._number - KEPT_MARKS)}")
        self._number += 1


class FileLeftovers:
    def __init__(self, identity: FeedIdentity, store: Store) -> None:
        self._identity = identity
        self._store = store
        self._swept: set[str] = set()

    def end(self, gone: Callable[[int], bool]) -> int:
        return len([self._sealed(epoch) for epoch in self._epochs() if gone(int(epoch))])

    def _epochs(self) -> list[str]:
        self._identity.confirm(self._store)
        return sorted({name for folder in (LOG, DATA) for name in self._store.names(folder) if name.isdigit()})

    def sweep(self, gone: Callable[[int], bool]) -> int:
        """`gone`: whether the node of this epoch is. Returns how many files were removed."""
        removed = 0
        known = self._epochs()
        over = {epoch for epoch in known if epoch not in self._swept and gone(int(epoch))}
        for epoch in sorted(set(known) - over - self._swept):
            self._sum_up(epoch, _newest_number(self._store, epoch) // GROUP * GROUP)
        for epoch, files in (self._data_files(over, gone) if over else {}).items():
            removed += self._sweep(epoch, files)
            self._swept.add(epoch)
        return removed

    def _data_files(self, over: set[str], gone: Callable[[int], bool]) -> Mapping[str, list[str]]:
        """By epoch. Whoever lists the folders of tables finds nodes there that are gone and have no log, too."""
        found: defaultdict[str, list[str]] = defaultdict(list, {epoch: [] for epoch in sorted(over)})
        by_table = not all(map(str.isdigit, self._store.names(DATA)))
        for folder in [DATA] if by_table else [f"{DATA}/{epoch}" for epoch in sorted(over)]:
            for name in self._store.below(folder):
                epoch = writer_of(name)
                if epoch in found or (epoch and epoch not in self._swept and gone(int(epoch))):
                    found[epoch].append(name)
        return found

    def _sweep(self, epoch: str, files: Iterable[str]) -> int:
        self._sum_up(epoch, self._sealed(epoch) + 1, sealed=True)
        sums = self._sums(epoch).values()
        lines = (line for found in sums for line in self._read(found.name(epoch)).splitlines())
        named = {file.name for line in lines for file in Manifest.parse(line).all_files}
        unnamed = [name for name in files if name not in named]
        for name in unnamed:
            self._store.remove(name)
        self._store.tidy(f"{DATA}/{epoch}")
        self._store.tidy(DATA, f"{epoch}-")
        return len(unnamed)

    def _sealed(self, epoch: str) -> int:
        """The number of the seal: there will be no more."""
        seal = Manifest(feed=self._identity.feed, ranges={}, sealed=True).json()
        number = _newest_number(self._store, epoch)
        while not self._store.create(manifest_name(epoch, number), seal):
            if Manifest.parse(self._read(manifest_name(epoch, number))).sealed:
                break
            number += 1
        return number

    def _sum_up(self, epoch: str, count: int, *, sealed: bool = False) -> None:
        """The manifests of whole groups, or all that the node has ever written. What a listing does not show is summed up again: the same."""
        sums = self._sums(epoch)
        for group in range(-(-count // GROUP)):
            if group not in sums:
                numbers = range(group * GROUP, min(count, (group + 1) * GROUP))
                manifests = [self._read(manifest_name(epoch, number)) for number in numbers]
                until = max(Manifest.parse(each).until for each in manifests)
                found = GroupSum(group, until, sealed and numbers.stop == count)
                self._store.create(found.name(epoch), b"\n".join(manifests))

    def _sums(self, epoch: str) -> dict[int, GroupSum]:
        return GroupSum.all_of(self._store.names(f"{LOG}/{epoch}"))

    def _read(self, name: str) -> bytes:
        content = self._store.read(name)
        if content is None:
            raise SinkUnavailable(
                f"{self._store}/{name}: expected this file, since a later one is there; found none. Nothing was removed"
            )
        return content
