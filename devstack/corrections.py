"""What SecantusDB does differently from MongoDB, corrected. Each function is one correction; its docstring says how MongoDB behaves.

A correction stands in for the function it names and gets that as its first argument. One file, longer than others here, because
it is a list: read the function you need. What stays different is in docs/development.md.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
import uuid as _uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import bson
from bson.binary import Binary
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.timestamp import Timestamp
from secantus import aggregate, changestreams, commands, diff, expressions, paths, sortkey, storage
from secantus.server import SecantusDBServer
from secantus.storage import Storage

from devstack import key_string

Entry = dict[str, Any]
Reply = dict[str, Any]
Rows = list[tuple[int, Entry]]

_CORRECTIONS: list[tuple[Any, str, Callable[..., Any]]] = []
_NO_UUID = _uuid.UUID(int=0)
_OP_INDEX = "opIndex"
_INDEX_BUILD = "indexBuildUUID"
_SYSTEM_DATABASES = {"admin", "config", "local"}
_ALL_DATES: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_SERVER: dict[str, Any] = {}
_CALL = threading.local()


def corrects(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(correction: Callable[..., Any]) -> Callable[..., Any]:
        _CORRECTIONS.append((owner, name, correction))
        return correction

    return register


def install() -> None:
    """All corrections, in this process, before the server is made. Of several for one function the last is the outermost."""
    for owner, name, correction in _CORRECTIONS:
        original = owner[name] if isinstance(owner, dict) else getattr(owner, name)
        if isinstance(owner, dict):
            owner[name] = _corrected(correction, original)
        else:
            setattr(owner, name, _corrected(correction, original))


def _corrected(correction: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def corrected(*args: Any, **kwargs: Any) -> Any:
        return correction(original, *args, **kwargs)

    return corrected


@contextlib.contextmanager
def _during(**facts: Any) -> Iterator[None]:
    """Facts of the running call, for corrections that it reaches further down in the same thread."""
    before = dict(_CALL.__dict__)
    _CALL.__dict__.update(facts)
    try:
        yield
    finally:
        _CALL.__dict__.clear()
        _CALL.__dict__.update(before)


def _known(fact: str) -> Any:
    return getattr(_CALL, fact, None)


# --- the oplog ---------------------------------------------------------------------------------------------------------------------


@corrects(bson, "decode")
def dates_of_all_years_are_read(decode: Callable[..., Any], data: Any, codec_options: Any = None) -> Any:
    """MongoDB's dates are 64-bit numbers; `datetime` ends with the year 9999."""
    return decode(data, codec_options or _ALL_DATES)


@corrects(sortkey, "_rank")
def far_dates_are_dates(rank: Callable[..., int], value: Any) -> int:
    return sortkey.RANK_DATE if isinstance(value, DatetimeMS) else rank(value)


@corrects(sortkey, "_encode_date")
def far_dates_have_their_place(encode: Callable[..., bytes], date: Any) -> bytes:
    return sortkey._signed_int64_sortable(int(date)) if isinstance(date, DatetimeMS) else encode(date)


@corrects(storage.wt, "wiredtiger_open")
def acknowledged_writes_survive_a_kill(wiredtiger_open: Callable[..., Any], home: str, config: str) -> Any:
    """A killed mongod has every acknowledged write: its journal is with the operating system before the answer leaves.

    Here journal records would wait in the process. They are handed over at commit, without waiting for the disk.
    """
    return wiredtiger_open(
        home,
        config.replace("transaction_sync=(enabled=false,method=fsync)", "transaction_sync=(enabled=true,method=none)"),
    )


@corrects(Storage, "__init__")
def remember_the_storage(init: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """No behaviour of its own: tokens and snapshot reads need the storage, of which this process has one."""
    init(self, *args, **kwargs)
    self._oplog_seq_lock = threading.RLock()
    self._writing = threading.RLock()
    _SERVER["storage"] = self


@corrects(Storage, "_batch_transaction")
@contextlib.contextmanager
def writes_side_by_side_cost_no_more(begin: Callable[..., Any], self: Any, **options: Any) -> Iterator[Any]:
    """Two writers are not slower than one. Here each step of a write lets the other go on, which costs both twice their time.

    So one waits for the other, but not for long: nothing but speed depends on it.
    """
    waited = self._writing.acquire(timeout=1.0)
    try:
        with begin(self, **options) as session:
            yield session
    finally:
        if waited:
            self._writing.release()


@corrects(Storage, "current_cluster_time")
def cluster_time_moves_with_the_oplog_only(mint: Callable[..., Timestamp], self: Any) -> Timestamp:
    """Asking for the time (`hello`, opening a stream) does not move it: cluster time is the newest oplog entry's."""
    with self._oplog_seq_lock:
        if self._last_ts_secs:
            return Timestamp(self._last_ts_secs, self._last_ts_ord)
    return mint(self)


@corrects(Storage, "_emit_oplog")
def a_transaction_has_one_time_at_its_place(
    emit: Callable[..., int], self: Any, entries: list[Entry], pre_images: Any = None
) -> int:
    """Every entry of a transaction carries its commit's time, and the order of times is the order of the oplog.

    Here a transaction took its time before its place, so a write between the two stood before it with a later time.
    """
    if getattr(self._tls, "user_txn", None) is not None or not entries or "ts" not in entries[0]:
        return emit(self, entries, pre_images)
    for index, entry in enumerate(entries):
        del entry["ts"]
        entry[_OP_INDEX] = index
    with _during(one_time=True):
        return emit(self, entries, pre_images)


@corrects(Storage, "_mint_oplog_seq_and_ts")
def one_time_for_the_transaction(mint: Callable[..., tuple[int, list[Timestamp]]], self: Any, n: int) -> Any:
    """The other half of `a_transaction_has_one_time_at_its_place`."""
    start, times = mint(self, n)
    return start, times[-1:] * n if _known("one_time") else times


@corrects(Storage, "_find_seq_for_ts_scan")
def a_start_time_is_found_at_once(_scan: Callable[..., int], self: Any, ts: Timestamp) -> int:
    """Opening a stream at a time takes no longer with a longer oplog. Here it decoded every entry."""
    with _oplog_cursor(self) as cursor:
        if cursor is None or cursor.next() != 0:
            return int(self._next_seq)
        low, high = int(cursor.get_key()), int(self._next_seq)
        while low < high:
            middle = (low + high) // 2
            found = _at_or_after(cursor, middle)
            if found is None or found[1] >= ts:
                high = middle
            else:
                low = found[0] + 1
        found = _at_or_after(cursor, low)
        return int(self._next_seq) if found is None else found[0]


@contextlib.contextmanager
def _oplog_cursor(self: Any) -> Iterator[Any]:
    with self._lock:
        if self._closed:
            yield None
            return
        session = self._conn.open_session()
        try:
            yield session.open_cursor(storage._OPLOG_TABLE, None)
        finally:
            session.close()


def _at_or_after(cursor: Any, seq: int) -> tuple[int, Timestamp] | None:
    cursor.set_key(seq)
    near = cursor.search_near()
    if near == storage.wt.WT_NOTFOUND or (near < 0 and cursor.next() != 0):
        return None
    return int(cursor.get_key()), bson.decode(bytes(cursor.get_value()))["ts"]


def _time_at_or_before(self: Any, seq: int) -> Timestamp:
    """The time of the newest entry up to a place; nothing is before the first."""
    with _oplog_cursor(self) as cursor:
        if cursor is None:
            return Timestamp(0, 0)
        cursor.set_key(seq)
        near = cursor.search_near()
        if near == storage.wt.WT_NOTFOUND or (near > 0 and cursor.prev() != 0):
            return Timestamp(0, 0)
        found: Timestamp = bson.decode(bytes(cursor.get_value()))["ts"]
        return found


@corrects(SecantusDBServer, "stop")
def a_stop_is_quick(stop: Callable[..., None], self: Any) -> None:
    """Here closing the listening socket did not wake the thread that accepts on it, and each stop waited two seconds for it."""
    if self._socket is not None:
        self._socket.shutdown(socket.SHUT_RDWR)
    stop(self)


# --- DDL ---------------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _alone(self: Any, *names: tuple[str, str]) -> Iterator[None]:
    """No write on these collections meanwhile. Before the storage's own lock, as everywhere in it."""
    with contextlib.ExitStack() as held:
        for db, coll in sorted(set(names)):
            held.enter_context(self._coll_lock(db, coll))
        yield


@corrects(Storage, "create_collection")
def a_create_stands_before_the_writes(
    create: Callable[..., bool], self: Any, db: str, coll: str, *args: Any, **options: Any
) -> bool:
    """DDL and writes on one collection stand in the oplog in the order in which they took effect.

    Here a write could come between a DDL's effect and its entry: an insert before its collection's `create`, a new collection
    before the `drop` of its predecessor.
    """
    with _alone(self, (db, coll)):
        return create(self, db, coll, *args, **options)


@corrects(Storage, "drop_collection")
def a_drop_stands_after_the_writes(drop: Callable[..., bool], self: Any, db: str, coll: str) -> bool:
    """As `a_create_stands_before_the_writes`."""
    with _alone(self, (db, coll)):
        return drop(self, db, coll)


@corrects(Storage, "drop_database")
def drops_of_a_database_stand_after_the_writes(drop: Callable[..., None], self: Any, db: str) -> None:
    """As `a_create_stands_before_the_writes`."""
    with _alone(self, *((db, coll) for coll in self.list_collections(db))):
        drop(self, db)


@corrects(Storage, "_ensure_collection")
def implicit_creation_is_a_create(_ensure: Callable[..., None], self: Any, db: str, coll: str) -> None:
    """The first write into a missing collection creates it: a `create` entry and event, with its UUID, before that write.

    Inside a transaction it is part of the transaction.
    """
    if self._coll_options(db, coll) is None and not _known("creates_nothing"):
        self.create_collection(db, coll)


@corrects(Storage, "update_matching")
def an_update_that_matches_nothing_creates_nothing(
    update: Callable[..., Any], self: Any, db: str, coll: str, *args: Any, **options: Any
) -> Any:
    """Only an upsert creates a missing collection."""
    with _during(creates_nothing=not options.get("upsert") and self._coll_options(db, coll) is None):
        return update(self, db, coll, *args, **options)


@corrects(Storage, "_collection_uuid")
def views_have_no_uuid(mint: Callable[..., _uuid.UUID], self: Any, db: str, coll: str) -> _uuid.UUID:
    """A view is a document of `system.views`; neither it nor a time-series collection (a view of its buckets) has a UUID.

    The null UUID marks them until their entries are written. A collection that is not there has none either: here it got one from
    whoever asked, a listing during its drop for example, and was there from then on.
    """
    options = self._coll_options(db, coll)
    if options is None or "viewOn" in options or "timeseries" in options:
        return _NO_UUID
    if "uuid" in options:
        return _uuid.UUID(bytes=_uuid_bytes(options["uuid"]))
    with self._lock:
        return mint(self, db, coll) if self._coll_options(db, coll) is not None else _NO_UUID


def _uuid_bytes(stored: Any) -> bytes:
    return stored.bytes if isinstance(stored, _uuid.UUID) else bytes(stored)


@corrects(Storage, "_emit_oplog")
def measurements_go_to_buckets(
    emit: Callable[..., int], self: Any, entries: list[Entry], pre_images: Any = None
) -> int:
    """Writes to a time-series collection are writes to its `system.buckets.` collection, which streams do not show."""
    first = entries[0] if entries else {}
    if first.get("op") in ("i", "u", "d") and "ts" not in first:
        db, _, coll = first["ns"].partition(".")
        if "timeseries" in (self._coll_options(db, coll) or {}):
            entries = [{**entry, "ns": f"{db}.system.buckets.{coll}"} for entry in entries]
    return emit(self, entries, pre_images)


@corrects(Storage, "_emit_oplog")
def entries_of_ddl(emit: Callable[..., int], self: Any, entries: list[Entry], pre_images: Any = None) -> int:
    """DDL entries hold what MongoDB's hold: whole index specifications; no UUID and no `_id` index for a view, the latter
    neither for a clustered collection; one `renameCollection` for a rename that replaces its target, without a `drop` before it;
    no `dropDatabase` for a database that was not there.
    """
    commands_only = [entry["o"] for entry in entries if entry["op"] == "c"]
    if len(commands_only) == 2 and "drop" in commands_only[0] and "renameCollection" in commands_only[1]:
        entries = entries[1:]
    if len(commands_only) == 1 and "dropDatabase" in commands_only[0]:
        entries = []
    return emit(self, [_as_mongod(entry) if entry["op"] == "c" else entry for entry in entries], pre_images)


def _as_mongod(entry: Entry) -> Entry:
    o = dict(entry["o"])
    entry = {**entry, "o": o}
    if entry.get("ui") == Binary(_NO_UUID.bytes, 4):
        del entry["ui"]
        o.pop("idIndex", None)
    if "viewPipeline" in o:
        o["pipeline"] = o.pop("viewPipeline")
    if "clusteredIndex" in o:
        o.pop("idIndex", None)
    if "create" in o and "idIndex" in o and "collation" in o:
        o["idIndex"] = {**o["idIndex"], "collation": o["collation"]}
    if "indexes" in o:
        o["indexes"] = [_index_spec(index) for index in o["indexes"]]
    if "dropIndexes" in o and _known("dropped_indexes") is not None:
        o.pop("key", None)
        entry["o2"] = _known("dropped_indexes")[o["index"]]
    if "renameCollection" in o:
        o.setdefault("stayTemp", False)
    return entry


def _index_spec(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name not in _INTERNAL_INDEX_FIELDS}


_CREATED_AT = "createdAtNs"
_INTERNAL_INDEX_FIELDS = ("multikey", "entryFormat", "ns", "background", _CREATED_AT)


@corrects(Storage, "create_index")
def an_index_knows_when_it_was_created(
    create: Callable[..., bool], self: Any, db: str, coll: str, name: str, key: Any, options: Any = None
) -> bool:
    """The other half of `indexes_are_listed_in_the_order_of_their_creation`."""
    return create(self, db, coll, name, key, {**(options or {}), _CREATED_AT: time.time_ns()})


@corrects(Storage, "list_indexes")
def indexes_are_listed_in_the_order_of_their_creation(
    list_indexes: Callable[..., Any], self: Any, db: str, coll: str
) -> Any:
    """The one on `_id` first. Here they were sorted by name."""
    return sorted(list_indexes(self, db, coll), key=lambda index: index.pop(_CREATED_AT, 0))


@corrects(Storage, "drop_index")
def a_dropped_index_is_described(drop: Callable[..., bool], self: Any, db: str, coll: str, name: str) -> bool:
    """`dropIndexes` tells the whole specification of what was dropped."""
    with _during(dropped_indexes=_index_specs(self, db, coll)):
        return drop(self, db, coll, name)


@corrects(Storage, "drop_all_indexes")
def all_dropped_indexes_are_described(drop: Callable[..., int], self: Any, db: str, coll: str) -> int:
    """As for one."""
    with _during(dropped_indexes=_index_specs(self, db, coll)):
        return drop(self, db, coll)


def _index_specs(self: Any, db: str, coll: str) -> dict[str, dict[str, Any]]:
    return {index["name"]: _index_spec(index) for index in self.list_indexes(db, coll)}


@corrects(commands._HANDLERS, "dropIndexes")
def several_indexes_are_dropped_by_name(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`index` may be a list of names: all are dropped, or none when one is missing."""
    names = doc.get("index")
    if not isinstance(names, list):
        return handler(doc, ctx)
    known = _index_specs(ctx.storage, ctx.db_name, doc["dropIndexes"])
    for name in names:
        if name not in known:
            return _error(27, "IndexNotFound", f"index not found with name [{name}]")
    replies = [handler({**doc, "index": name}, ctx) for name in names]
    return {**replies[-1], "nIndexesWas": len(known)} if replies else {"nIndexesWas": len(known), "ok": 1.0}


@corrects(commands._HANDLERS, "createIndexes")
def an_index_build_is_one_event(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """The indexes that one command builds on documents come into being together: one event. On an empty collection each has its own."""
    coll, store = doc["createIndexes"], ctx.storage
    if not isinstance(coll, str) or not store.find_matching(ctx.db_name, coll, {}, limit=1):
        return handler(doc, ctx)
    built: list[Entry] = []
    with _during(index_build=built):
        reply = handler(doc, ctx)
    if built:
        indexes = [index for entry in built for index in entry["o"]["indexes"]]
        build = {"createIndexes": coll, "indexes": indexes, _INDEX_BUILD: Binary(_uuid.uuid4().bytes, 4)}
        with store._lock:
            store._emit_oplog([{**built[0], "o": build}])
    return reply


@corrects(Storage, "_emit_oplog")
def an_index_build_is_written_when_done(
    emit: Callable[..., int], self: Any, entries: list[Entry], pre_images: Any = None
) -> int:
    """The other half of `an_index_build_is_one_event`."""
    built = _known("index_build")
    if built is None or not entries or entries[0]["op"] != "c" or "createIndexes" not in entries[0]["o"]:
        return emit(self, entries, pre_images)
    built.extend(entries)
    return 0


def collations_are_complete(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """A collation is kept and told with all its fields; `{locale: "simple"}` is as none."""
    doc = _with_whole_collation(doc)
    if isinstance(doc.get("indexes"), list):
        doc = {**doc, "indexes": [_with_whole_collation(index) for index in doc["indexes"]]}
    return handler(doc, ctx)


def _with_whole_collation(spec: Any) -> Any:
    if not isinstance(spec, Mapping) or not isinstance(spec.get("collation"), Mapping):
        return spec
    if spec["collation"].get("locale") == "simple":
        return {field: value for field, value in spec.items() if field != "collation"}
    return {**spec, "collation": {"locale": None, **_COLLATION, **spec["collation"]}}


_COLLATION = {
    "caseLevel": False,
    "caseFirst": "off",
    "strength": 3,
    "numericOrdering": False,
    "alternate": "non-ignorable",
    "maxVariable": "punct",
    "normalization": False,
    "backwards": False,
    "version": "57.1",
}

for _command in ("create", "createIndexes"):
    corrects(commands._HANDLERS, _command)(collations_are_complete)


@corrects(Storage, "rename_collection")
def a_rename_keeps_uuid_and_options(
    rename: Callable[..., tuple[bool, str | None]],
    self: Any,
    src_db: str,
    src_coll: str,
    dst_db: str,
    dst_coll: str,
    *,
    drop_target: bool = False,
) -> tuple[bool, str | None]:
    """Within a database a collection keeps its UUID and its options under its new name.

    Across databases it is copied: a temporary collection is created and filled in the other database, renamed to the target,
    and the source dropped.
    """
    with _alone(self, (src_db, src_coll), (dst_db, dst_coll)), self._lock:
        self._refresh_read_snapshot()
        options = self._coll_options(src_db, src_coll)
        if options is not None and src_db != dst_db:
            return _rename_across(self, (src_db, src_coll), (dst_db, dst_coll), drop_target=drop_target)
        done, problem = rename(self, src_db, src_coll, dst_db, dst_coll, drop_target=drop_target)
        if done and options is not None:
            self._write_coll_options(dst_db, dst_coll, options)
        return done, problem


def _rename_across(
    self: Any, src: tuple[str, str], dst: tuple[str, str], *, drop_target: bool
) -> tuple[bool, str | None]:
    if self._coll_options(*dst) is not None and not drop_target:
        return False, f"target namespace exists: {dst[0]}.{dst[1]}"
    temporary = f"tmp{_uuid.uuid4().hex[:5]}.renameCollection"
    options = {name: value for name, value in (self._coll_options(*src) or {}).items() if name != "uuid"}
    self.create_collection(dst[0], temporary, options)
    for name, spec in _index_specs(self, *src).items():
        if name != "_id_":
            rest = {option: value for option, value in spec.items() if option not in ("v", "key", "name")}
            self.create_index(dst[0], temporary, name, spec["key"], rest)
    documents = self.find_matching(*src)
    if documents:
        self.insert(dst[0], temporary, documents)
    self.rename_collection(dst[0], temporary, *dst, drop_target=drop_target)
    self.drop_collection(*src)
    return True, None


@corrects(aggregate._STAGES, "$out")
def out_writes_aside_and_renames(_stage: Callable[..., Any], spec: Any, docs: list[Any], ctx: Any) -> list[Any]:
    """`$out` fills a temporary collection and renames it over its target, which keeps its options and indexes."""
    db, coll = (ctx.db_name, spec) if isinstance(spec, str) else (spec.get("db"), spec.get("coll"))
    store = ctx.storage
    if store is None or not db or not coll:
        return list(_stage(spec, docs, ctx))
    aggregate._enforce_target_validator(ctx, db, coll, docs)
    temporary = f"tmp.agg_out.{_uuid.uuid4()}"
    options = {name: value for name, value in (store._coll_options(db, coll) or {}).items() if name != "uuid"}
    indexes = _index_specs(store, db, coll)
    store.create_collection(db, temporary, options)
    for name, index in indexes.items():
        if name != "_id_":
            rest = {option: value for option, value in index.items() if option not in ("v", "key", "name")}
            store.create_index(db, temporary, name, index["key"], rest)
    if docs:
        store.insert(db, temporary, [dict(document) for document in docs])
    store.rename_collection(db, temporary, db, coll, drop_target=True)
    return []


@corrects(expressions._OPS, "$type")
def a_variable_of_nothing_is_missing(type_of: Callable[..., Any], arg: Any, ctx: Any) -> Any:
    """`$type` of a variable that is bound to an absent field is `missing`."""
    if isinstance(arg, str) and arg.startswith("$$") and expressions._eval(arg, ctx) is expressions.MISSING:
        return "missing"
    return type_of(arg, ctx)


@corrects(commands._HANDLERS, "collMod")
def coll_mod_knows_what_was_asked(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`collMod` changes `hidden`, a capped collection's size, a view's definition and `expireAfterSeconds` of the collection,
    and its event tells what stood before, of the index too (`stateBeforeChange.indexOptions`).
    """
    coll = doc["collMod"]
    before = _index_specs(ctx.storage, ctx.db_name, coll) if isinstance(coll, str) else {}
    with _during(coll_mod=doc, indexes_before=before):
        return handler(doc, ctx)


@corrects(Storage, "record_collmod")
def coll_mod_does_what_was_asked(
    record: Callable[..., None],
    self: Any,
    db: str,
    coll: str,
    description: dict[str, Any],
    *,
    state_before: dict[str, Any] | None = None,
) -> None:
    """The other half of `coll_mod_knows_what_was_asked`."""
    doc = _known("coll_mod") or {}
    stored_as = {"viewOn": "viewOn", "pipeline": "viewPipeline", "cappedSize": "size", "cappedMax": "max"}
    stored_as["expireAfterSeconds"] = "expireAfterSeconds"
    for field, option in stored_as.items():
        if field in doc:
            description[field] = doc[field]
            self.set_collection_options(db, coll, **{option: doc[field]})
    old_index: dict[str, Any] = {}
    if isinstance(doc.get("index"), Mapping):
        spec = _named_index(doc["index"], _known("indexes_before"))
        changes = {field: doc["index"][field] for field in _INDEX_CHANGES if field in doc["index"]}
        description["index"] = {"name": spec["name"], **changes}
        old_index = {field: spec[field] for field in changes if field in spec}
        if "hidden" in changes:
            old_index["hidden"] = bool(spec.get("hidden"))
            self.set_index_options(db, coll, spec["name"], hidden=changes["hidden"])
    with _during(old_index=old_index):
        record(self, db, coll, description, state_before=state_before)


_INDEX_CHANGES = ("expireAfterSeconds", "hidden", "prepareUnique", "unique")


def _named_index(wanted: Mapping[str, Any], indexes: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    if "name" in wanted:
        return indexes[wanted["name"]]
    return next(index for index in indexes.values() if list(index["key"].items()) == list(wanted["keyPattern"].items()))


@corrects(Storage, "_emit_oplog")
def coll_mod_tells_the_index_before(
    emit: Callable[..., int], self: Any, entries: list[Entry], pre_images: Any = None
) -> int:
    """The entry's `o2` holds `indexOptions_old` beside `collectionOptions_old`."""
    old = _known("old_index")
    if old and len(entries) == 1 and "collMod" in entries[0]["o"]:
        entries[0]["o2"]["indexOptions_old"] = old
    return emit(self, entries, pre_images)


@corrects(commands._HANDLERS, "listCollections")
def listed_views_have_no_uuid(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`info.uuid` is there for collections only; a time-series collection is of type `timeseries`. One that went away meanwhile is not listed."""
    reply = handler(doc, ctx)
    listed = reply.get("cursor", {}).get("firstBatch")
    if listed:
        reply["cursor"]["firstBatch"] = [entry for entry in listed if not _gone(entry)]
    for entry in reply.get("cursor", {}).get("firstBatch", ()):
        if "timeseries" in entry.get("options", {}):
            entry["type"] = "timeseries"
            entry.pop("idIndex", None)
        if entry["type"] != "collection":
            entry.get("info", {}).pop("uuid", None)
    return reply


def _gone(entry: Mapping[str, Any]) -> bool:
    is_collection = entry["type"] == "collection" and "timeseries" not in entry.get("options", {})
    return is_collection and entry.get("info", {}).get("uuid") == Binary(_NO_UUID.bytes, 4)


@corrects(commands._HANDLERS, "listCollections")
def collections_are_looked_up_by_name(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """A filter by one name, or by several with `$in`, does not look at all the others."""
    _CALL.listed = _asked_for(doc.get("filter"))
    try:
        return handler(doc, ctx)
    finally:
        _CALL.listed = None


def _asked_for(condition: object) -> set[str] | None:
    name = condition.get("name") if isinstance(condition, Mapping) else None
    several = name.get("$in") if isinstance(name, Mapping) and len(name) == 1 else [name]
    return set(several) if isinstance(several, list) and all(isinstance(each, str) for each in several) else None


@corrects(Storage, "list_collections")
def those_asked_for_are_listed(original: Callable[..., list[str]], self: Storage, db: str) -> list[str]:
    """As above."""
    asked = getattr(_CALL, "listed", None)
    return [name for name in original(self, db) if asked is None or name in asked]


_WRITES = {"insert": "documents", "update": "updates", "delete": "deletes"}
_UUID_CHECKED = (
    *_WRITES,
    "find",
    "aggregate",
    "findAndModify",
    "count",
    "distinct",
    "createIndexes",
    "dropIndexes",
    "collMod",
    "drop",
)


def expected_uuid_is_checked(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`collectionUUID` says which collection is meant: another one under that name refuses the command with
    CollectionUUIDMismatch (361), which tells the name that the meant one has now, if any; writes tell it as a write error.
    """
    if "collectionUUID" not in doc:
        return handler(doc, ctx)
    command = next(iter(doc))
    named = doc[command]
    db, coll = named.split(".", 1) if command == "renameCollection" else (ctx.db_name, named)
    problem = _uuid_mismatch(ctx.storage, db, coll, doc["collectionUUID"])
    if problem is None:
        return handler({field: value for field, value in doc.items() if field != "collectionUUID"}, ctx)
    if command not in _WRITES:
        return {"ok": 0.0, **problem, "codeName": "CollectionUUIDMismatch"}
    failed = 1 if doc.get("ordered", True) else len(doc[_WRITES[command]])
    return {"ok": 1.0, "n": 0, "writeErrors": [{"index": index, **problem} for index in range(failed)]}


def _uuid_mismatch(store: Any, db: str, coll: str, expected: Binary) -> Reply | None:
    def has_it(name: str) -> bool:
        return bool(store.collection_exists(db, name) and store.collection_uuid(db, name).bytes == bytes(expected))

    if has_it(coll):
        return None
    return {
        "code": 361,
        "errmsg": "Collection UUID does not match that specified",
        "db": db,
        "collectionUUID": expected,
        "expectedCollection": coll,
        "actualCollection": next((name for name in store.list_collections(db) if has_it(name)), None),
    }


for _command in (*_UUID_CHECKED, "renameCollection"):
    corrects(commands._HANDLERS, _command)(expected_uuid_is_checked)


@corrects(commands._HANDLERS, "bulkWrite")
def bulk_write_checks_uuids(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`nsInfo.collectionUUID` holds for each operation on that namespace."""
    infos = doc.get("nsInfo")
    expected = (
        {info["ns"]: info["collectionUUID"] for info in infos if "collectionUUID" in info}
        if isinstance(infos, list)
        else {}
    )
    with _during(expected_uuids=expected):
        return handler(doc, ctx)


def one_of_a_bulk_write(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """The other half of `bulk_write_checks_uuids`."""
    expected = (_known("expected_uuids") or {}).get(f"{ctx.db_name}.{doc[next(iter(doc))]}")
    return expected_uuid_is_checked(handler, doc if expected is None else {**doc, "collectionUUID": expected}, ctx)


for _command in _WRITES:
    corrects(commands, f"_{_command}")(one_of_a_bulk_write)


def append_oplog_note(doc: Mapping[str, Any], ctx: Any) -> Reply:
    """`{appendOplogNote: 1, data: {...}}` on `admin` writes a no-op entry with the data: the cluster time moves on, no event comes of it."""
    if ctx.db_name != "admin":
        return _error(13, "Unauthorized", "appendOplogNote may only be run against the admin database.")
    if not isinstance(doc.get("data"), Mapping):
        return _error(40414, "IDLFailedToParse", "BSON field 'appendOplogNote.data' is missing but a required field")
    with ctx.storage._lock:
        ctx.storage._emit_oplog([{"op": "n", "ns": "", "o": dict(doc["data"])}])
    return {"ok": 1.0}


def _error(code: int, name: str, message: str) -> Reply:
    return {"ok": 0.0, "errmsg": message, "code": code, "codeName": name}


commands._HANDLERS["appendOplogNote"] = append_oplog_note


# --- change streams ------------------------------------------------------------------------------------------------------------------


class _Anywhere(str):
    """The namespace of a token: KeyStrings hold none, and a token may be taken to any stream."""

    __slots__ = ()


@corrects(changestreams, "_scope_matches")
def streams_show_no_system_collections(matches: Callable[..., bool], ns: str, scope: Mapping[str, Any]) -> bool:
    """Streams show neither `admin`, `config` and `local` nor `system.` collections."""
    if isinstance(ns, _Anywhere):
        return True
    db, _, coll = ns.partition(".")
    return db not in _SYSTEM_DATABASES and not coll.startswith("system.") and matches(ns, scope)


@corrects(changestreams, "project")
def events_say_what_mongod_says(
    project: Callable[..., tuple[Any, bool]], seq: int, entry: Mapping[str, Any], **options: Any
) -> tuple[Any, bool]:
    """The token of an event is the same in every stream that shows it. DDL inside a transaction carries `lsid` and
    `txnNumber`. Index events tell whole specifications, `modify` the index's state before. Views' events appear in expanded
    streams of a database or the cluster only.
    """
    with _during(projecting=True):
        event, invalidates = project(seq, entry, **options)
    if event is None:
        return None, invalidates
    if entry["op"] == "c":
        if "ui" not in entry and "dropDatabase" not in entry["o"] and _hides_views(**options):
            return None, False
        _complete_ddl_event(event, entry)
    event["_id"] = {"_data": _token(entry, event["operationType"])}
    return changestreams._order_event_fields(event), invalidates


@corrects(changestreams, "project")
def a_post_image_is_of_its_change(
    project: Callable[..., tuple[Any, bool]], seq: int, entry: Mapping[str, Any], **options: Any
) -> tuple[Any, bool]:
    """`fullDocument: whenAvailable` and `required` bring the document as the update left it: its pre-image with the update in it.

    Here it was as it is now.
    """
    event, invalidates = project(seq, entry, **options)
    mode = options.get("full_document_mode")
    if event is not None and event["operationType"] == "update" and mode in _STORED_IMAGES:
        before = options["storage"].read_preimage(seq)
        event["fullDocument"] = None if before is None else diff.apply_update_description(before, entry["o"]["diff"])
    return event, invalidates


_STORED_IMAGES = (changestreams.FULL_DOC_WHEN_AVAILABLE, changestreams.FULL_DOC_REQUIRED)


def _hides_views(*, scope: Mapping[str, Any], show_expanded_events: bool = False, **_: Any) -> bool:
    return not show_expanded_events or scope["kind"] == "coll"


def _complete_ddl_event(event: dict[str, Any], entry: Mapping[str, Any]) -> None:
    o, o2 = entry["o"], entry.get("o2", {})
    event.update({field: entry[field] for field in ("lsid", "txnNumber") if field in entry})
    if "createIndexes" in o:
        event["operationDescription"] = {"indexes": o["indexes"]}
    if "dropIndexes" in o:
        event["operationDescription"] = {"indexes": [o2]}
    if "ui" not in entry:
        event.pop("stateBeforeChange", None)
    if "indexOptions_old" in o2:
        event["stateBeforeChange"]["indexOptions"] = o2["indexOptions_old"]


@corrects(changestreams, "invalidate_event")
def an_invalidate_stands_after_its_cause(invalidate: Callable[..., Any], seq: int, entry: Mapping[str, Any]) -> Any:
    """Its token differs from its cause's in one byte only, and sorts after it."""
    with _during(projecting=True):
        event = invalidate(seq, entry)
    event["_id"] = {"_data": _token(entry, "invalidate", from_invalidate=True)}
    return event


def _token(entry: Mapping[str, Any], operation: str, *, from_invalidate: bool = False) -> str:
    identity: dict[str, Any] = {"operationType": operation}
    if entry["op"] != "c":
        identity["documentKey"] = entry["o2"]
    ui = entry.get("ui")
    return key_string.event_token(
        entry["ts"],
        entry.get(_OP_INDEX, 0),
        None if ui is None else bytes(ui),
        identity,
        from_invalidate=from_invalidate,
    )


@corrects(changestreams, "make_resume_token")
def tokens_are_key_strings(_make: Callable[..., Any], data: Any) -> dict[str, str]:
    """A place without an event is the high water mark of the newest entry up to it: events *before* that time were shown.

    The newest entry that was read, never the clock: a write may have got its time and not be readable yet.
    """
    if _known("projecting"):
        return {"_data": ""}
    return {"_data": key_string.high_water_mark(_time_at_or_before(_SERVER["storage"], data.seq))}


@corrects(changestreams, "parse_resume_token")
def tokens_come_back(_parse: Callable[..., Any], token: Mapping[str, Any]) -> Any:
    """`resumeAfter` and `startAfter` go on after the event, with its next fragment, or with the first event at the mark's time."""
    place = _place(token)
    seq = _SERVER["storage"].find_seq_for_ts(place.ts) - 1
    if place.event:
        seq += 1 + place.op_index - place.fragment
    return changestreams.ResumeTokenData(seq, place.ts, _Anywhere(), {}, place.from_invalidate)


def _place(token: Mapping[str, Any]) -> key_string.Place:
    data = token.get("_data")
    if not isinstance(data, str):
        raise ValueError("resume token's _data must be a hex string")  # noqa: TRY004 - the caller answers ValueError with FailedToParse
    return key_string.read(data)


@corrects(changestreams, "stamp_split_event")
def fragments_have_their_own_tokens(split: Callable[..., list[Any]], event: dict[str, Any]) -> list[Any]:
    """Each fragment of a large event has its own token, and a field stands in one of them only."""
    fragments = split(event)
    if len(fragments) == 1:
        fragments[0].pop("splitEvent", None)
        return fragments
    told = {"_id", "splitEvent"}
    for number, fragment in enumerate(fragments):
        for field in [field for field in fragment if field in told and field not in ("_id", "splitEvent")]:
            del fragment[field]
        told |= fragment.keys()
        fragment["_id"] = {"_data": key_string.fragment_token(fragment["_id"]["_data"], number)}
    return fragments


@corrects(Storage, "oplog_floor_seq")
def lost_history_is_told_by_time(floor: Callable[..., int], self: Any) -> int:
    """While a stream opens, `streams_open_where_they_are_told` has compared times already."""
    return -1 if _known("opening") else floor(self)


@corrects(commands, "_aggregate_change_stream")
def streams_open_where_they_are_told(
    open_stream: Callable[..., Reply],
    doc: Mapping[str, Any],
    ctx: Any,
    coll: Any,
    pipeline: Sequence[Any],
    batch_size: int,
) -> Reply:
    """A start before the oplog's first entry is refused with ChangeStreamHistoryLost (286), unless that entry is the replica set's
    first. The ways to say where to start exclude each other. A stream whose first batch is empty is at the place it was told;
    one that was told none is after the newest entry.
    """
    spec = pipeline[0]["$changeStream"]
    given = [spec[name] for name in ("resumeAfter", "startAfter", "startAtOperationTime") if spec.get(name)]
    if len(given) > 1:
        return _error(40674, "Location40674", "Only one type of resume option is allowed, but multiple were found.")
    start: str | None = None
    if given:
        try:
            start = key_string.high_water_mark(given[0]) if isinstance(given[0], Timestamp) else given[0]["_data"]
            lost = _lost(ctx.storage, key_string.read(start).ts)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            return _error(9, "FailedToParse", f"resume point cannot be read: {error}")
        if lost:
            return _error(286, "ChangeStreamHistoryLost", _LOST)
    with _during(opening=True):
        reply = open_stream(doc, ctx, coll, pipeline, batch_size)
    if reply.get("ok") == 1.0:
        _place_new_stream(reply["cursor"], ctx, start)
    return reply


_LOST = "Resume of change stream was not possible, as the resume point may no longer be in the oplog."


def _lost(store: Any, start: Timestamp) -> bool:
    with _oplog_cursor(store) as cursor:
        if cursor is None or cursor.next() != 0:
            return False
        first = bson.decode(bytes(cursor.get_value()))
        return bool(start < first["ts"] and first["o"] != {"msg": "initiating set"})


def _place_new_stream(cursor: Reply, ctx: Any, start: str | None) -> None:
    if not cursor["id"]:
        return
    entry = ctx.cursors.get(int(cursor["id"]))
    if start is None:
        newest = _time_at_or_before(ctx.storage, entry.position_seq)
        start = key_string.high_water_mark(Timestamp(newest.time, newest.inc + 1))
    entry.producer = functools.partial(_from, start, entry.producer)
    entry.shown = max(start, getattr(entry, "shown", ""))
    cursor["firstBatch"] = _from(start, lambda: cursor["firstBatch"])
    entry.remaining = _from(start, lambda: entry.remaining)
    if not cursor["firstBatch"] and not entry.remaining:
        entry.last_token = {"_data": start}
        cursor["postBatchResumeToken"] = entry.last_token


def _from(start: str, producer: Callable[[], list[Any]]) -> list[Any]:
    """A start in the future skips what happens before it, and one after a fragment those up to it."""
    return [event for event in producer() if event["_id"]["_data"] > start]


@corrects(commands, "_change_stream_cursor_doc")
def the_post_batch_token_never_goes_back(
    document: Callable[..., Reply], entry: Any, *args: Any, **kwargs: Any
) -> Reply:
    """Not even inside a transaction, whose high water mark sorts before the events of it that were shown."""
    reply = document(entry, *args, **kwargs)
    token = reply.get("postBatchResumeToken")
    if token is not None:
        entry.shown = max(getattr(entry, "shown", ""), token["_data"])
        entry.last_token = reply["postBatchResumeToken"] = {"_data": entry.shown}
    return reply


@corrects(commands._HANDLERS, "getMore")
def streams_wait_for_what_matches(get_more: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """A getMore on a stream waits for an event that matches, until maxTimeMS have passed. Here any write ended it."""
    deadline = time.monotonic() + doc.get("maxTimeMS", 1000) / 1000
    while True:
        reply = get_more(doc, ctx)
        cursor = reply.get("cursor", {})
        left = round((deadline - time.monotonic()) * 1000)
        if cursor.get("nextBatch") != [] or not cursor["id"] or "postBatchResumeToken" not in cursor:
            return reply
        if left <= 0 or ctx.storage._shutting_down:
            return reply
        doc = {**doc, "maxTimeMS": left}


@corrects(storage, "apply_update")
def modifiers_work_in_the_order_of_their_paths(
    apply: Callable[..., Entry], doc: Entry, update: Any, **options: Any
) -> Entry:
    """New fields are appended in lexicographic order, numbers by their value, whatever the order given and the operator."""
    return apply(doc, _ByPath(update) if isinstance(update, Mapping) else update, **options)


class _ByPath(dict[str, Any]):
    """An update that names each field of each operator alone."""

    def items(self) -> Any:
        single = [
            (operator, {path: value})
            for operator, fields in super().items()
            if operator.startswith("$") and isinstance(fields, Mapping)
            for path, value in fields.items()
        ]
        others = [item for item in super().items() if not (item[0].startswith("$") and isinstance(item[1], Mapping))]
        return [*others, *sorted(single, key=_written_path)]


def _written_path(single: tuple[str, Entry]) -> list[tuple[bool, int, str]]:
    ((path, value),) = single[1].items()
    return _path_order(value if single[0] == "$rename" and isinstance(value, str) else path)


def _path_order(path: str) -> list[tuple[bool, int, str]]:
    return [(not name.isdigit(), len(name) if name.isdigit() else 0, name) for name in path.split(".")]


@corrects(storage, "compute_update_description")
def new_fields_are_told_in_their_order(describe: Callable[..., Entry], pre: Entry, post: Entry, update: Any) -> Entry:
    """`updatedFields` holds what was there before, then what is new, in the order in which a modifier update appends it."""
    told = describe(pre, post, update)
    fields = told["updatedFields"]
    places = {path: (not paths.has_path(pre, path), _path_order(path)) for path in fields}
    return {**told, "updatedFields": {path: fields[path] for path in sorted(fields, key=places.__getitem__)}}


@corrects(storage, "_update_oplog_o")
def dotted_names_are_told_apart(
    describe: Callable[..., dict[str, Any]], pre: dict[str, Any], post: dict[str, Any], *args: Any
) -> dict[str, Any]:
    """`disambiguatedPaths` names the components of a path through a field whose own name holds a dot."""
    o = describe(pre, post, *args)
    diff = o.get("diff")
    if "$v" not in o or not isinstance(diff, dict):
        return o
    dotted = {}
    for changed_paths, old, new in ((diff["updatedFields"], pre, post), (diff["removedFields"], post, pre)):
        for path in changed_paths:
            before = dict(_readings(old, path))
            changed = (names for names, value in _readings(new, path) if names not in before or before[names] != value)
            names = next(changed, ())
            if any(isinstance(name, str) and "." in name for name in names):
                dotted[path] = list(names)
    if dotted:
        diff["disambiguatedPaths"] = {**diff.get("disambiguatedPaths", {}), **dotted}
    return o


def _readings(value: Any, path: str) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Each way to read a dotted path in a value, with what stands there."""
    fields = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in fields:
        if path == str(name):
            yield (name,), inner
        elif path.startswith(f"{name}."):
            for rest, found in _readings(inner, path[len(str(name)) + 1 :]):
                yield (name, *rest), found


# --- reads ---------------------------------------------------------------------------------------------------------------------------


def snapshot_reads_are_at_their_time(handler: Callable[..., Reply], doc: Mapping[str, Any], ctx: Any) -> Reply:
    """A read with `readConcern: snapshot` sees exactly the writes up to the `atClusterTime` that it tells.

    Here the time was taken after the read. The read now runs while no write can get a time, and none has one that is not readable.
    """
    concern = doc.get("readConcern")
    if (
        not isinstance(concern, Mapping)
        or concern.get("level") != "snapshot"
        or ctx.storage is None
        or "txnNumber" in doc
    ):
        return handler(doc, ctx)
    store = ctx.storage
    while True:
        with store._lock, store._oplog_seq_lock:
            if not store._oplog_in_flight:
                at = store.peek_cluster_time()
                reply = handler(doc, ctx)
                if "cursor" in reply:
                    reply["cursor"].setdefault("atClusterTime", at)
                else:
                    reply.setdefault("atClusterTime", at)
                return reply
        with store._oplog_cv:
            store._oplog_cv.wait(0.01)


for _command in ("find", "aggregate", "distinct"):
    corrects(commands._HANDLERS, _command)(snapshot_reads_are_at_their_time)


# --- local.oplog.rs ------------------------------------------------------------------------------------------------------------------


@corrects(Storage, "_scan_oplog_entries")
def the_oplog_reads_like_mongods(scan: Callable[..., list[Entry]], self: Any) -> list[Entry]:
    """In `local.oplog.rs` a transaction is one `applyOps`, a `createIndexes` holds one flat index specification, a build on
    documents is a `commitIndexBuild`, and a view is a document of `system.views` that is inserted, replaced and deleted.
    """
    return [entry for _, entry in _as_read([(0, entry) for entry in scan(self)])]


@corrects(Storage, "_find_oplog_rs")
def the_ends_of_the_oplog_are_found_at_once(
    find: Callable[..., list[Entry]], self: Any, filter: Any, *, sort: Any, skip: int, limit: int, **options: Any
) -> list[Entry]:
    """Its first or last entry by `$natural` costs one step, however long it is. Of a transaction at an end one operation is shown."""
    way = (sort or {}).get("$natural")
    if filter or skip or limit != 1 or way is None:
        return find(self, filter, sort=sort, skip=skip, limit=limit, **options)
    with _oplog_cursor(self) as cursor:
        if cursor is None or (cursor.next() if way > 0 else cursor.prev()) != 0:
            return []
        entries = [entry for _, entry in _as_read([(0, bson.decode(bytes(cursor.get_value())))])]
    projection = options["projection"]
    return storage.apply_projection_batch(entries, projection, filter) if projection else entries


@corrects(Storage, "read_oplog")
def the_tailed_oplog_reads_like_mongods(read: Callable[..., Rows], self: Any, *, limit: int, **options: Any) -> Rows:
    """As `the_oplog_reads_like_mongods`; a transaction is never cut."""
    rows = read(self, limit=limit, **options)
    last = rows[-1][1] if rows else {}
    if len(rows) == limit and _OP_INDEX in last:
        rows += read(self, start_seq=rows[-1][0] + 1, limit=100_000)
        end = next((at for at in range(limit, len(rows)) if rows[at][1]["ts"] != last["ts"]), len(rows))
        del rows[end:]
    return _as_read(rows)


def _as_read(rows: Rows) -> Rows:
    read: Rows = []
    for seq, entry in rows:
        op = _view_document(entry) if entry["op"] == "c" and "ui" not in entry else _flat(entry)
        if _OP_INDEX not in entry:
            read.append((seq, {**op, "t": bson.Int64(1), "v": bson.Int64(2)}))
            continue
        inner = {field: op[field] for field in ("op", "ns", "ui", "o", "o2") if field in op}
        started = entry[_OP_INDEX] > 0 and bool(read)
        whole = read.pop()[1] if started else _apply_ops(entry)
        whole["o"]["applyOps"].append(inner)
        read.append((seq, whole))
    return read


def _apply_ops(entry: Entry) -> Entry:
    whole: Entry = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": []}}
    whole.update({field: entry[field] for field in ("lsid", "txnNumber", "ts", "wall") if field in entry})
    return {**whole, "t": bson.Int64(1), "v": bson.Int64(2)}


def _flat(entry: Entry) -> Entry:
    o = entry["o"]
    if entry["op"] != "c" or "createIndexes" not in o:
        return entry
    if _INDEX_BUILD in o:
        build = {"commitIndexBuild": o["createIndexes"], _INDEX_BUILD: o[_INDEX_BUILD], "indexes": o["indexes"]}
        return {**entry, "o": build}
    return {**entry, "o": {"createIndexes": o["createIndexes"], **o["indexes"][0]}}


def _view_document(entry: Entry) -> Entry:
    o, db = entry["o"], entry["ns"].removesuffix(".$cmd")
    command = next(iter(o))
    if command not in ("create", "collMod", "drop"):
        return entry
    key = {"_id": f"{db}.{o[command]}"}
    rest = {field: o[field] for field in ("viewOn", "pipeline", "collation") if field in o}
    written: Entry = {**entry, "op": {"create": "i", "collMod": "u", "drop": "d"}[command], "ns": f"{db}.system.views"}
    return {**written, "o": {**key, **rest}, "o2": key}


@corrects(changestreams, "stamp_split_event")
def mark_only_events_that_are_split(original: Callable[[Entry], list[Entry]], event: Entry) -> list[Entry]:
    """`splitEvent` stands only in fragments of events over 16 MB; `$changeStreamSplitLargeEvent` passes others as they are."""
    return [event] if len(bson.encode(event)) <= 16 * 1024 * 1024 else original(event)
