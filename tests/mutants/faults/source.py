"""Faults of the room `source`."""

from __future__ import annotations

from tests.mutants.fault import Fault, Seeds

_OPLOG = ("tests/unit/source/oplog", Seeds(count=15), "tests/component/source/oplog/test_row_reader.py")
_DDL_WATCH = ("tests/unit/source/oplog", Seeds(count=15), "tests/component/source/test_ddl_watches.py")

SOURCE = (
    Fault(
        "a range of the oplog that was truncated whole counts as complete",
        "                elif number == 0:\n                    refuse_a_gap(",
        "                elif number == 0 and found:\n                    refuse_a_gap(",
        tests=_OPLOG,
    ),
    Fault(
        "a range of the oplog is read as far as a member has come",
        '"readConcern": {"level": "majority", "afterClusterTime": last_ts.to_bson()},',
        '"readConcern": {"level": "majority"},',
        tests=_OPLOG,
    ),
    Fault(
        "the oplog of another member says that nothing was removed",
        '    if member_read(client) != member:\n        raise SourceUnavailable(\n            f"the member whose',
        '    if member is None:\n        raise SourceUnavailable(\n            f"the member whose',
        tests=_OPLOG,
    ),
    Fault(
        "an oplog that begins at the start of a range has lost nothing before it",
        'if oldest is None or ClusterTime.from_bson(oldest["ts"]) > start_ts:',
        'if oldest is None or ClusterTime.from_bson(oldest["ts"]) > start_ts.next():',
        tests=_OPLOG,
    ),
    Fault(
        "a missing part of a transaction is left out",
        '    if not found:\n        raise HistoryLost(f"a part of a transaction,',
        '    if not found and projection is not None:\n        raise HistoryLost(f"a part of a transaction,',
        tests=_OPLOG,
    ),
    Fault(
        "the DDL watch resolves what is at the majority's point only",
        "end = Position(committed_ts.next())\n            events = self._read_stride(end)",
        "end = Position(committed_ts)\n            events = self._read_stride(end)",
        tests=_DDL_WATCH,
    ),
    Fault(
        "the DDL watch shows again what is before its start",
        "return tuple(event for event in found if event.position >= self._resolved)",
        "return tuple(found)",
        tests=_DDL_WATCH,
    ),
    Fault(
        "the DDL watch counts a stride that was not read as read",
        "            self._stride, self._wait = shorter, 0.0\n            return ()",
        "            self._stride, self._wait, self._resolved = shorter, 0.0, reached\n            return ()",
        tests=_DDL_WATCH,
    ),
    Fault(
        "the rows of a range begin behind its start",
        "while begin < end and first < self._next:",
        "while begin < end and first <= self._next:",
        tests=_OPLOG,
    ),
    Fault(
        "the rows of a range go on to its end",
        "while end > begin and last >= self.window.end:",
        "while end > begin and last > self.window.end:",
        tests=_OPLOG,
    ),
    Fault(
        "a window that ends within a time does not read that time",
        "return end.ts.next() if end.token else end.ts",
        "return end.ts",
        tests=_OPLOG,
    ),
    Fault(
        "a range that was read by name counts as the whole window",
        "progress.complete = end_ts == progress.end_ts",
        "progress.complete = True",
        tests=_OPLOG,
    ),
    Fault(
        "a read that breaks off begins anew behind its batch",
        "self._next = position(last.ts, index_of(last) + 1)",
        "self._next = Position(last.ts.next())",
        tests=_OPLOG,
    ),
    Fault(
        "the parts of a transaction are read from its end",
        "return times[::-1]",
        "return times",
        tests=_OPLOG,
    ),
    Fault(
        "a prepared transaction is visible before its commit",
        'partial = applies and (_true(o, b"partialTxn") or _true(o, b"prepare"))',
        'partial = applies and _true(o, b"partialTxn")',
        tests=_OPLOG,
    ),
    Fault(
        "retryable writes are taken for a transaction's chain",
        'if int.from_bytes(fields.get(b"multiOpType", b""), "little") == _RETRYABLE_WRITES or b"prevOpTime" not in fields:',
        'if b"prevOpTime" not in fields:',
        tests=_OPLOG,
    ),
    Fault(
        "an index counts when its build starts",
        '        "startIndexBuild",\n',
        "",
    ),
    Fault(
        "a rename forgets the table that it replaced",
        'drop_target=uuid_of(o.get("dropTarget")),\n',
        "drop_target=None,\n",
    ),
    Fault(
        "an inserted field keeps the place of the one before",
        "                found.removed.append((*parents, name))\n",
        "",
    ),
    Fault(
        "the truncation of an array is lost",
        '            found.truncated.append((path, int.from_bytes(diff[begin:end], "little")))\n',
        "            continue\n",
    ),
    Fault(
        "a change stream's token is taken as inclusive",
        "    shown = position_of(token) if token is not None else None\n",
        "    shown = Position(position_of(token).ts.next()) if token is not None else None\n",
    ),
    Fault(
        "the newest write of a quiet source counts as a note",
        "return Position(committed_ts if ours else committed_ts.next())",
        "return Position(committed_ts)",
    ),
    Fault(
        "a window of a change stream is complete between the parts of an event",
        "token = None if self._fragments else reply.resume_token",
        "token = reply.resume_token",
    ),
    Fault(
        "a stream that is opened again shows its last event twice",
        "begin = max(begin, bisect_right(events, self._last, key=_position))",
        "begin = max(begin, bisect_left(events, self._last, key=_position))",
    ),
    Fault(
        "a DDL stream that is opened again shows its last event twice",
        "return position >= self._start and (self._delivered is None or position > self._delivered)",
        "return position >= self._start and (self._delivered is None or position >= self._delivered)",
    ),
    Fault(
        "a reply of a change stream to an earlier read tells what the majority has now",
        "majority_time(self._client) if reply is None or late else reply.operation_ts",
        "majority_time(self._client) if reply is None else reply.operation_ts",
    ),
    Fault(
        "a member that does not know what the majority has tells its newest time",
        'majority_time_of(hello) if "lastWrite" in hello else session_time(session)',
        'majority_time_of(hello) if "majorityOpTime" in hello.get("lastWrite", {}) else session_time(session)',
    ),
    Fault(
        "a chunk is read before its copy's start",
        "if Position(ts.next()) < self._chunk.not_before:",
        "if ts.next() < ClusterTime(0, 0):",
        tests=("tests/unit/source/tables/test_chunk_reader.py",),
    ),
    Fault(
        "a chunk that is read on has its last document twice",
        "            documents = documents[1:]\n        if documents:\n            self._last_key",
        "            pass\n        if documents:\n            self._last_key",
        tests=("tests/unit/source/tables/test_chunk_reader.py",),
    ),
    Fault(
        "a chunk read on continues at a time of its own",
        "                if self._after is not None:\n                    concern = {",
        "                if self._until is None:\n                    concern = {",
        tests=("tests/unit/source/tables/test_chunk_reader.py",),
    ),
    Fault(
        "a watermark read ends at the time where it began",
        "self._until = newest_time(self._client)",
        "self._until = self._after",
        tests=("tests/unit/source/tables/test_chunk_reader.py",),
    ),
    Fault(
        "rows of two shards keep the order in which the shards are named",
        "turn = _PASSES if headers[stay[-1]].type == _DELETE else _ARRIVES",
        "turn = _STAYS",
    ),
    Fault(
        "rows of two shards have one position",
        "self._shard = digits_of(shard).encode()",
        'self._shard = b"0" * 14',
    ),
    Fault(
        "rows of the last time of a shard's stretch are given on with it",
        "if bound is None else first_of(rows, bound)",
        "if bound is None else first_of(rows, bound + 1)",
    ),
    Fault(
        "a cluster is complete up to an undecided prepare's stream",
        "return self.read_ts if self.prepared_ts is None else min(self.read_ts, self.prepared_ts)",
        "return self.read_ts",
    ),
    Fault(
        "a cluster is as far as its furthest shard",
        "return min(point.complete_ts for point in points.values())",
        "return max(point.complete_ts for point in points.values())",
    ),
    Fault(
        "a shard's commits behind the window's end are not looked for",
        "entries(self._client, range.start_ts, range.until_ts, _COMMITS)",
        "entries(self._client, range.start_ts, range.end_ts, _COMMITS)",
        tests=(Seeds(count=30, options=("sharded",)),),
    ),
    Fault(
        "prepared transactions of another member are taken for those of this one",
        '        if member_read(self._client) != member:\n            raise SourceUnavailable(f"{self.name} is read from another member now")\n',
        "",
        tests=("tests/unit/source/sharded/test_stream.py",),
    ),
    Fault(
        "the opening of a cluster's stream ends at the first error after a minute",
        "            time.sleep(_LOOK_AGAIN_SECONDS)\n        else:\n            give_up_at = time.monotonic() + _PATIENCE_SECONDS\n",
        "            time.sleep(_LOOK_AGAIN_SECONDS)\n",
        tests=("tests/unit/source/sharded/test_stream.py",),
    ),
    Fault(
        "a catalog that is read in parts has tables of several times",
        "if (ddl.position < reading.position if name in settled else disturbs(reading, ddl))",
        "if name not in settled and disturbs(reading, ddl)",
        tests=("tests/unit/source/tables/test_catalog.py",),
    ),
    Fault(
        "the client of a shard is that of its first hosts",
        "host = self._hosts[shard] = host or self._hosts[shard]",
        "host = self._hosts.setdefault(shard, host)",
        tests=("tests/unit/source/sharded/test_cluster_clients.py",),
    ),
    Fault(
        "a stalled majority of the source is not told",
        "elif now - self._behind_since >= _BEHIND_FOR and self._trouble is None:",
        "elif now - self._behind_since >= _BEHIND_FOR and self._trouble is not None:",
        tests=("tests/unit/source/test_majority_watch.py",),
    ),
    Fault(
        "the DDL of a cluster's table that could not be followed is never shown again",
        "            self._begin(new, name, new)\n        if known is None:",
        "            pass\n        if known is None:",
        tests=("tests/unit/source/sharded/tables",),
    ),
    Fault(
        "a name that is no UTF-8 reaches the owner of a cluster's changefeed",
        "if is_utf8(event.db, event.table, event.renamed_to):",
        "if is_utf8(event.db, event.table):",
        tests=("tests/component/source/sharded/test_ddl_watch.py",),
    ),
    Fault(
        "an entry of 4.2 is read as those of later servers are",
        "    if entry[4] == _TIME_FIRST:\n",
        "    if entry[4] == 0:\n",
    ),
    Fault(
        "a copy of a capped table that rolls is given up",
        "if isinstance(error, OperationFailure) and error.code == CAPPED_POSITION_LOST:\n            return SourceUnavailable(",
        "if isinstance(error, OperationFailure) and error.code == CAPPED_POSITION_LOST:\n            return InvariantError(",
    ),
    Fault(
        "the last key of all is not read after a broken connection",
        'if not self.ended and "min" in arguments and "max" not in arguments:',
        "if not self.ended and not self._chunk.whole and self._chunk.range.last_key_apart:",
    ),
)
