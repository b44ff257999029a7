"""Faults of the room `owner`."""

from __future__ import annotations

from tests.mutants.fault import Fault, Seeds

_WRITER = ("tests/unit/owner/test_etcd_writes.py",)

OWNER = (
    Fault(
        "a sink of messages is told an index behind a mark that is past it",
        "background_indexes=configuration.ddl.async_indexes and not configuration.sink_traits.keeps_messages,",
        "background_indexes=configuration.ddl.async_indexes,",
    ),
    Fault(
        "the scope of an index DDL leaves out tables that share its target name",
        "tables=frozenset(schema.id for schema in (*touched, *sharing) if schema.kind is not TableKind.VIEW),",
        "tables=frozenset(\n                    schema.id\n"
        "                    for schema in (*touched, *(sharing if event.type is not DdlType.CREATE_INDEXES else ()))\n"
        "                    if schema.kind is not TableKind.VIEW\n                ),",
    ),
    Fault(
        "where a table begins again hides where it is",
        " and event.id not in tables:",
        ":",
        tests=("tests/unit/owner/test_source_watch.py",),
    ),
    Fault(
        "the tables of a gone node wait as if nothing waited",
        "        self.calm = decision.calm and not self._gone_at\n",
        "        self.calm = decision.calm\n",
    ),
    Fault(
        "an open DDL waits as if nothing waited",
        "and not (ddl or steps or tables or held)",
        "and not (steps or tables or held)",
        tests=("tests/unit/owner/test_changefeed_owner.py",),
    ),
    Fault(
        "the patience of a drop is that of the first one of the term",
        "        if ended:\n            self._give_up_deadline = None\n",
        "",
        tests=("tests/unit/owner/test_chores.py",),
    ),
    Fault(
        "the scope of a DDL leaves out tables that routes map to its names",
        "sharing = [schema for schema in self._names.having(names, event.position, tables) if schema.id not in nameless]",
        "sharing: list[TableSchema] = []",
    ),
    Fault(
        "the table that a rename replaces is missing from what ends",
        "return frozenset(with_rows & {event.drop_target})",
        "return frozenset()",
    ),
    Fault(
        "the table that a rename replaces is missing from its scope",
        "replaced = tables.at(event.drop_target, event.position) if event.drop_target else None",
        "replaced = None",
    ),
    Fault(
        "a unique index is built while rows are applied",
        'and not index.get("unique")\n        and not index.get("prepareUnique")',
        'and not index.get("prepareUnique")',
    ),
    Fault(
        "an unknown command at the source is skipped",
        "    if event.type is not DdlType.UNKNOWN:\n        return\n    if (why :=",
        "    if event.type is not DdlType.UNKNOWN or event.table is not None:\n        return\n    if (why :=",
    ),
    Fault(
        "a missed DDL is recorded once more at each look",
        "for table, error in met.items() if name_of_view(table) not in names}",
        "for table, error in met.items()}",
    ),
    Fault(
        "a DDL at the resolved position runs",
        "if record.position < resolved and record.refused is None and _reached(",
        "if record.position <= resolved and record.refused is None and _reached(",
    ),
    Fault(
        "a refused DDL runs without its user",
        "if record.position < resolved and record.refused is None and _reached(",
        "if record.position < resolved and _reached(",
    ),
    Fault(
        "a DDL runs though no node has one of its tables",
        "return all(checkpoint == record.position for checkpoint in checkpoints)",
        "return all(checkpoint in (None, record.position) for checkpoint in checkpoints)",
    ),
    Fault(
        "a build in the background overtakes an earlier DDL that it overlaps",
        "        if not before.meets(record.scope):\n            yield record",
        "        if record.background or not before.meets(record.scope):\n            yield record",
    ),
    Fault(
        "the checkpoint passes DDLs that are open",
        "return min(first_open, resolved if tables is None else tables)",
        "return resolved if tables is None else tables",
    ),
    Fault(
        "the barrier is published before the DDLs below it are recorded",
        "actions += _gate_actions(state, resolved, held, together)",
        "actions[:0] = _gate_actions(state, resolved, held, together)",
    ),
    Fault(
        "the gate opens before its DDL is recorded as done",
        "self._commit([*map(self._put_ddl, records), self._put_barrier(barrier), *begun])",
        "self._commit([self._put_barrier(barrier)])\n        self._commit([*map(self._put_ddl, records), *begun])",
        tests=(*_WRITER, Seeds(count=20)),
    ),
    Fault(
        "a request counts as answered before its DDLs are recorded",
        "        self._store.commit_in_parts([self._put_ddl(record) for record in records])\n        self._answer(answers, asked)\n",
        "        self._answer(answers, asked)\n        self._store.commit_in_parts([self._put_ddl(record) for record in records])\n",
        tests=_WRITER,
    ),
    Fault(
        "a changefeed has its status before the schemas of its tables",
        "        self._commit([DeletePrefix(self._layout.schemas(self._id)), DeletePrefix(self._layout.ddls(self._id))])\n",
        "        self._commit([self._put_status(status)])\n"
        "        self._commit([DeletePrefix(self._layout.schemas(self._id)), DeletePrefix(self._layout.ddls(self._id))])\n",
        tests=(*_WRITER, Seeds(count=20)),
    ),
    Fault(
        "the old and the new node of a moved table are written in two transactions",
        "        for together in whole_parts(puts):\n            self._commit(together)",
        "        for put in puts:\n            self._commit([put])",
        tests=_WRITER,
    ),
    Fault(
        "the parts of an assignment are cut where a transaction is full",
        "return batches(part for _, part in sorted(by_part.items()))",
        "return batches([put] for _, part in sorted(by_part.items()) for put in part)",
        tests=_WRITER,
    ),
    Fault(
        "the rows of a node are forgotten with it",
        "rows = rows.plus(reports[node].rows) if node in reports else rows",
        "rows = rows if node in reports else rows",
        tests=_WRITER,
    ),
    Fault(
        "a folded DDL is deleted before its effect is in the bases",
        "self._commit([*writes, *(Delete(self._layout.ddl(self._id, position)) for position in step.ddls)])",
        "self._commit([Delete(self._layout.ddl(self._id, position)) for position in step.ddls])\n        self._commit(writes)",
        tests=_WRITER,
    ),
    Fault(
        "a watermark is made from the resolved position",
        "self._sink_chores.mark(status.checkpoint, missing, ",
        "self._sink_chores.mark(status.resolved or status.checkpoint, missing, ",
    ),
    Fault(
        "a watermark is made without the stragglers",
        "self._sink_chores.mark(status.checkpoint, missing, ",
        "self._sink_chores.mark(status.checkpoint, {}, ",
    ),
    Fault(
        "a step of a DDL that was recorded as executing is begun anew",
        "    if record.state is DdlState.EXECUTING:\n        return Apply(record)",
        "    if record.state is DdlState.EXECUTING and progress is not None:\n        return Apply(record)",
    ),
    Fault(
        "a refused DDL keeps what was observed before its repair",
        "refused = replace(refused, state=DdlState.PENDING, before=None, executing_at=None)",
        "refused = replace(refused, state=DdlState.PENDING)",
    ),
    Fault(
        "the tables of a node that is gone are given away without its margin",
        "if state.gone_at is not None and state.gone_at <= lost_before:",
        "if state.gone_at is not None:",
    ),
    Fault(
        "a table that leaves is given away before its node has released it",
        "given_up = (table for table in state.assignment.leaving if progress.released(table))",
        "given_up = iter(state.assignment.leaving)",
    ),
    Fault(
        "a moved table begins where its old node began",
        "assigned = replace(state.assignment.tables[table], start=checkpoint)",
        "assigned = state.assignment.tables[table]",
    ),
    Fault(
        "a report of an earlier assignment releases a table",
        "return report is not None and table in report.released and table not in self._uncovered[node]",
        "return report is not None and table in report.released",
    ),
    Fault(
        "a table may be before a DDL of it that is done",
        "return max(least, self._begun_at.get(table, least))",
        "return least",
    ),
    Fault(
        "a node obeys a stop that it has not seen",
        "return covered and report is not None and report.stops.get(table, 0) >= stop_rev",
        "return covered and report is not None and table in report.stops",
    ),
    Fault(
        "a report from before the last start says that everything has stopped",
        "still = report is not None and report.run == 0 and report.barrier_rev >= self.barrier_rev",
        "still = report is not None and report.run == 0",
    ),
    Fault(
        "a node that is gone stands still at once",
        "still = gone_at[node] <= gone_before",
        "still = True",
    ),
    Fault(
        "a watch that was opened again shows its last DDL twice",
        "if last is None or event.position > last]",
        "if last is None or event.position >= last]",
    ),
    Fault(
        "a sighting counts from when the source has answered",
        "                asked_at = datetime.now(UTC)\n                self._deliver(self, watch.poll(), asked_at)",
        "                self._deliver(self, watch.poll(), datetime.now(UTC))",
    ),
    Fault(
        "DDLs are folded into the bases beyond the checkpoint",
        "below = checkpoint if crowded else min(checkpoint, settled[-_HISTORY])",
        "below = settled[-_HISTORY]",
    ),
    Fault(
        "a straggler is forgotten before it has caught up",
        "        if at is not None and at >= passed\n",
        "        if at is not None\n",
    ),
    Fault(
        "a table is resumed before its node obeys the stop",
        "    if stopped is not None and not places.obeys(table, stopped.rev):\n        return ()\n",
        "",
    ),
    Fault(
        "the status goes back to an earlier checkpoint",
        "    checkpoint = max(checkpoint, status.checkpoint)\n    lifecycle = _lifecycle(",
        "    lifecycle = _lifecycle(",
    ),
    Fault(
        "a user's command is obeyed again at each tick",
        "    if info.version == status.info_version:\n        return status.lifecycle\n",
        "",
    ),
    Fault(
        "a table is not copied anew while the source has one place for its two DDLs",
        "self.lacks_place |= entered is None and",
        "self.lacks_place |= left is None and",
        tests=("tests/unit/owner/decision/test_recopy.py",),
    ),
    Fault(
        "an idle source is not told to move on",
        "self._source_chores.note(wanted=decision.lacks_place or self._sync.wants_note)",
        "self._source_chores.note(wanted=False)",
        tests=("tests/unit/owner/test_changefeed_owner.py",),
    ),
    Fault(
        "a sync point is made while tables are on their way to it",
        "        if not arrived and held < ARRIVES_WITHIN:",
        "        if held < 0:",
        tests=("tests/unit/owner/decision/test_sync_hold.py",),
    ),
    Fault(
        "a table that is dropped after a sync point is not excepted from it",
        "        schema = tip.at(table, place)\n        return None if schema is None else (schema.name, target_of",
        "        schema = tip.latest(table)\n        return None if schema is None else (schema.name, target_of",
        tests=("tests/unit/owner/decision/test_sync_hold.py",),
    ),
    Fault(
        "each part of a pass begins at its beginning",
        "compared = self._compare(self._id, point, before.place, stop)",
        "compared = self._compare(self._id, point, None, stop)",
        tests=("tests/unit/owner/test_continuous_check.py",),
    ),
    Fault(
        "a part counts though the changefeed began anew meanwhile",
        "        if compared is None or began != before:\n",
        "        if compared is None:\n",
        tests=("tests/unit/owner/test_continuous_check.py",),
    ),
    Fault(
        "a pass that goes on without a difference ends the alert of the last one",
        "return max((each.done.different for each in (self.present, self.last) if each is not None), default=0)",
        "return max((each.done.different for each in (self.present,) if each is not None), default=0)",
        tests=("tests/unit/owner/test_continuous_check.py",),
    ),
    Fault(
        "a changefeed that is asked to begin again begins while it still begins",
        "                if not asked.done:\n                    return None\n                asked = None\n",
        "                asked = None\n",
        tests=("tests/unit/owner/test_background.py",),
    ),
    Fault(
        "what an owner of a changefeed has left running writes beside the next one",
        "        self._permit.ended = True\n",
        "",
        tests=("tests/unit/owner/test_changefeed_owner.py",),
    ),
)
