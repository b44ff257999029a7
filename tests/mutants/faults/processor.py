"""Faults of the room `processor`."""

from __future__ import annotations

from tests.mutants.fault import Fault

PROCESSOR = (
    Fault(
        "a node sees that a table was stopped or resumed with the next barrier only",
        "        layout.stragglers(id),\n        layout.repairs(id),\n        layout.assignment(id, node),\n",
        "        layout.repairs(id),\n        layout.assignment(id, node),\n",
    ),
    Fault(
        "a worker leaves open what it has of an older context",
        "            before[key].close()\n",
        "            before[key]\n",
        tests=("tests/component/processor/task/test_worker_resources.py",),
    ),
    Fault(
        "a driver that had no descriptor for one call never listens again",
        "                self._not_accepted(error)\n                continue\n",
        "                return\n",
        tests=("tests/unit/processor/task/test_channel.py",),
    ),
    Fault(
        "a window of a sink of messages is not committed",
        "            self.commits.window(shared.context, spec, outcome)\n",
        "",
    ),
    Fault(
        "an early end of a window is committed as the whole",
        "        job = whole if outcome.ended is None else whole.cut(outcome.ended)\n        ranges =",
        "        job = whole\n        ranges =",
    ),
    Fault(
        "chunks of a sink of messages are not committed",
        "                self.commits.chunks(shared.context, steps, answers)\n",
        "                pass\n",
    ),
    Fault(
        "a window that failed is committed",
        "if self.commits is not None and not failed:",
        "if self.commits is not None:",
    ),
    Fault(
        "a chunk that is read again is not cleared",
        "        place.loader.clear(step.range)\n",
        "        pass\n",
    ),
    Fault(
        "a chunk that is tried again counts as the first",
        "                if isinstance(step, CopyChunk):\n                    self._fresh.discard(step.schema.id)\n",
        "                if isinstance(step, CopyChunk):\n",
        tests=("tests/unit/processor/copy/test_copied_tables.py",),
    ),
    Fault(
        "what was loaded of a lost snapshot stays where the chunk was the first",
        "            step = replace(step, fresh=False)\n",
        "",
    ),
    Fault(
        "a table that comes back counts as one that nobody has loaded",
        "        self._fresh -= leaving\n",
        "",
        tests=("tests/unit/processor/copy/test_copied_tables.py",),
    ),
    Fault(
        "a chunk is loaded though nobody wants it any more",
        "        place.check_wanted()\n        if reader.ended:",
        "        if reader.ended:",
    ),
    Fault(
        "a chunk counts as read from its copy's start only",
        "after = step.copied_from.ts.previous() if place.creation.filled_in_place else reader.after",
        "after = reader.after",
    ),
    Fault(
        "a window that ended early counts as a whole one",
        "lanes=lanes.finished(number, outcome.rows.unsettled, outcome.rows.ahead, outcome.ended, uneven=outcome.uneven),",
        "lanes=lanes.finished(number, outcome.rows.unsettled, outcome.rows.ahead, None, uneven=outcome.uneven),",
    ),
    Fault(
        "rows after an uneven end are not replay",
        "left = _replaying(left, whole, default=whole is self.default_job) if uneven else left",
        "left = left",
    ),
    Fault(
        "what a failed window has applied is not replay",
        "return _compacted(_replaying(ended, job, default=job is self.default_job))",
        "return _compacted(ended)",
    ),
    Fault(
        "a table that is assigned anew has no replay",
        "replay = {table: max(start, barrier.of(table)) for table, start in starts.items()}",
        "replay = dict(starts)",
    ),
    Fault(
        "an unsettled table moves its checkpoint",
        "exceptions[table], reach[table] = unfinished.start, _twice(unfinished)",
        "exceptions[table], reach[table] = unfinished.end, _twice(unfinished)",
    ),
    Fault(
        "a table is released while a job has it",
        "return {table: self.checkpoint_of(table) for table in self.leaving if not self.busy(table)}",
        "return {table: self.checkpoint_of(table) for table in self.leaving}",
    ),
    Fault(
        "a table that leaves gets new jobs",
        "if at < barrier.of(table) and table not in lanes.leaving and not lanes.busy(table)",
        "if at < barrier.of(table) and not lanes.busy(table)",
    ),
    Fault(
        "a window goes past the DDL that holds its table",
        "return min(max(end, lanes.reach.get(table, end)), barrier.of(table))",
        "return min(max(end, lanes.reach.get(table, end)), barrier.position)",
    ),
    Fault(
        "a node reports that it has stopped while a job runs",
        "run=self.run if self.wanted(orders) or lanes.running or copying else 0,",
        "run=self.run if self.wanted(orders) or copying else 0,",
    ),
    Fault(
        "a node obeys a stop while a job has the table",
        "if table in lanes.tables and not lanes.busy(table) and table not in copying",
        "if table in lanes.tables and table not in copying",
    ),
    Fault(
        "a run begins while jobs of the last one run",
        "if orders.running and following.run != orders.run and not lanes.running and not copying:",
        "if orders.running and following.run != orders.run and not copying:",
    ),
    Fault(
        "a permanent error is tried again in the same run",
        "retry_at = None if error.lasting else now + pause_after(failures).total_seconds()",
        "retry_at = now + pause_after(failures).total_seconds()",
    ),
    Fault(
        "a task's permit is counted from etcd's answer",
        'its job starts again"\n            )\n        self._looked_at = now\n',
        'its job starts again"\n            )\n        self._looked_at = self._monotonic()\n',
    ),
    Fault(
        "a task goes on though its node's key is of another epoch",
        "if node is None or node.create_rev != fence.epoch:",
        "if node is None:",
    ),
    Fault(
        "a task of a revoked attempt goes on",
        "if revoked is not None:\n            raise FencedError(",
        "if revoked is not None and status.run != fence.run:\n            raise FencedError(",
    ),
    Fault(
        "a task of an earlier run goes on",
        "if status is None or status.run != fence.run or not status.lifecycle.running:",
        "if status is None or not status.lifecycle.running:",
    ),
    Fault(
        "a permit is renewed though etcd confirmed only the node",
        "run=fence.run, error=str(error)\n            )\n            return\n",
        "run=fence.run, error=str(error)\n            )\n            self._looked_at = now\n            return\n",
    ),
    Fault(
        "a revoked attempt counts as ended at once",
        "                self.over.wait(self.margin.total_seconds())\n                return",
        "                return",
    ),
    Fault(
        "an event at the end of its table's window is taken",
        "return span[0] <= (header.time, header.token) < span[1]",
        "return span[0] <= (header.time, header.token) <= span[1]",
    ),
    Fault(
        "an event at the start of its table's window is left out",
        "return span[0] <= (header.time, header.token) < span[1]",
        "return span[0] < (header.time, header.token) < span[1]",
    ),
    Fault(
        "an event of an unknown table is left out",
        "        if name is None or other is None:\n            raise _unknown(header, name)\n",
        "        if name is None or other is None:\n            return False\n",
    ),
    Fault(
        "an event of another table under a known name stops that table wherever it is",
        "        if self._ours(other.id):\n            raise InvariantError(",
        "        if True:\n            raise InvariantError(",
    ),
    Fault(
        "a change at the time of a chunk's snapshot is applied to it",
        "        if time <= after:\n            return Overlap.HELD",
        "        if time < after:\n            return Overlap.HELD",
    ),
    Fault(
        "a change at the end of a chunk's reading is new",
        "return Overlap.REPLAYED if time <= until else Overlap.NEW",
        "return Overlap.REPLAYED if time < until else Overlap.NEW",
    ),
    Fault(
        "a window ends early before the place that it has to reach",
        "                    if at >= self._least:\n                        self.at = at\n                        break\n",
        "                    self.at = at\n                    break\n",
    ),
    Fault(
        "the last rows of a window are not settled",
        "        self.flush()\n        self.outcome.rows.add(self._run.settle())",
        "        self.flush()\n        self._run.settle()",
    ),
    Fault(
        "slices behind a full one are as long as before",
        "finished.slices * max(1, span_seconds(finished.window) % of_a_slice)",
        "finished.slices * of_a_slice",
    ),
    Fault(
        "a bucket of a divided window is held up by one table",
        "(LONGEST_SETTLED_SECONDS, inf) if use.settled",
        "(LONGEST_SETTLED_SECONDS, HELD_UP_SECONDS) if use.settled",
    ),
    Fault(
        "a task does not wait for its last batch",
        "        batch = self._taken()\n        self._wait()\n        self.outcome.rows.add(self._written(batch).rows)",
        "        batch = self._taken()\n        self.outcome.rows.add(self._written(batch).rows)",
    ),
    Fault(
        "a window ends where its last bucket ended",
        "outcome.ended = min((ended for ended in ends if ended is not None), default=None)",
        "outcome.ended = max((ended for ended in ends if ended is not None), default=None)",
    ),
    Fault(
        "a permanent error of a bucket is hidden by a passing one",
        "return other if one.retryable and not other.retryable else one",
        "return one",
    ),
    Fault(
        "changes of a table with unique values are folded",
        "        if table.ordered:\n",
        "        if table.ordered and table.dependence is None:\n",
        tests=("tests/unit/sink/mongodb/rows/test_dependent_rows.py",),
    ),
    Fault(
        "an update of a unique value is taken in by what was before it",
        '    if change.type is not _UPDATE or dependence.touched_by(change.update or b""):\n',
        "    if change.type is not _UPDATE:\n",
        tests=("tests/unit/sink/mongodb/rows/test_dependent_rows.py",),
    ),
    Fault(
        "a field that was removed and set again keeps its place",
        "    if later.sets.keys() & set(earlier.removed):\n        return None\n",
        "",
    ),
    Fault(
        "an index behind a refused one counts as begun",
        "takewhile(lambda record: record.refused is None, to_come)",
        "(record for record in to_come if record.refused is None)",
        tests=("tests/unit/processor/copy/test_copy_inputs.py",),
    ),
    Fault(
        "a copy is built on before the barrier has passed its chunks",
        "        if copy.upto > inputs.barrier:\n            return Wait()\n",
        "",
    ),
    Fault(
        "a table is emptied while its chunks are being copied",
        "    if inputs.running:\n        return Wait()\n    stands =",
        "    stands =",
    ),
    Fault(
        "a unique index is built on an incomplete copy",
        'return not any(_unique(index) for index in ddl.description.decode().get("indexes", ()))',
        "return True",
    ),
    Fault(
        "a copy ends where its chunks were begun",
        "return beyond(max(chunk.until for chunk in self.copied.values()))",
        "return beyond(max(chunk.after for chunk in self.copied.values()))",
    ),
    Fault(
        "a copy is followed past the place of a chunk that is being read",
        "furthest = Position(min([inputs.barrier, *inputs.running.values()]).ts)",
        "furthest = Position(inputs.barrier.ts)",
    ),
    Fault(
        "a slice that failed ends its window without an error",
        "                applier.outcome.error = ended\n",
        "",
    ),
    Fault(
        "the text of an exception in a task is not redacted",
        'InvariantError(f"{type(error).__name__} in a task: {redacted(str(error))}")',
        'InvariantError(f"{type(error).__name__} in a task: {error}")',
    ),
    Fault(
        "a report that a DDL waits for is held back like any other",
        "if now < self._reported_at + _REPORT_EVERY and arrived.items() <= self._arrived.items():",
        "if now < self._reported_at + _REPORT_EVERY:",
        tests=("tests/unit/processor/test_changefeed_processor.py",),
    ),
    Fault(
        "a row of a capped table that came and went comes again in a replay",
        "if table.dependence is None or (self._replay and table.dependence.paths != frozenset()):",
        "if table.dependence is None or self._replay:",
        tests=("tests/unit/processor/task/rows/test_capped_replayed.py",),
    ),
    Fault(
        "a full capped table is replayed by batches",
        "        if capped and overlap is not Overlap.HELD:\n",
        "        if capped and overlap is Overlap.HELD:\n",
        tests=("tests/unit/processor/task/rows/test_applier.py",),
    ),
    Fault(
        "a table that comes back into the filter is unknown by the UUID that it had there",
        "event.id is not None for uuid in later_uuids(event)}",
        "event.type is DdlType.NEW_UUID and event.id is not None for uuid in later_uuids(event)}",
        tests=("tests/unit/processor/test_changefeed_processor.py",),
    ),
    Fault(
        "an update in an unknown form stops all tables",
        'or for files and topics by another changefeed"\n        ).about(schema.id)',
        'or for files and topics by another changefeed"\n        )',
    ),
)
