"""Faults of the room `sink`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_CONCERNS = "tests/unit/sink/mongodb/test_write_concerns.py"
_COMMANDER = (_CONCERNS, "tests/component/sink/mongodb/test_commander.py")
_DELIVERY = ("tests/component/sink/mongodb/test_delivery.py",)
_ROWS = ("tests/component/sink/mongodb/rows/test_row_writer.py",)
_DIVERGED = ("tests/component/sink/mongodb/rows/test_diverged_rows.py",)
_DEPENDENT = ("tests/unit/sink/mongodb/rows/test_dependent_rows.py",)
_LETTERS = ("tests/component/sink/mongodb/rows/test_letters.py",)
_DDL = ("tests/unit/sink/mongodb/ddl", "tests/component/sink/mongodb/ddl/test_ddl_applier.py")
_FILES = ("tests/unit/sink/messages/files", "tests/component/sink/files/test_directory_of_files.py")
_LEFTOVERS = ("tests/component/sink/files/test_leftovers.py",)
_STORES = ("tests/component/sink/files/test_stores.py",)
_TOPICS = ("tests/unit/sink/messages/kafka/test_sender.py",)
_KAFKA_OWNER = ("tests/unit/sink/messages/kafka/test_owner_log.py",)

SINK = (
    Fault(
        "a connection that is closed delivers what it has",
        'struct.pack("ii", 1, 0)',
        'struct.pack("ii", 0, 0)',
        tests=_DELIVERY,
    ),
    Fault(
        "only some connections to a target give up",
        "if _port_of(connection) == event.address[1]:",
        "if _port_of(connection) != event.address[1]:",
        tests=_DELIVERY,
    ),
    Fault(
        "an unsatisfied write concern of rows is ignored",
        '        if concern := document.get("writeConcernError"):\n            if concern',
        '        if (concern := document.get("writeConcernError")) and concern.get("code") not in LATE:\n            if concern',
        tests=_COMMANDER,
    ),
    Fault(
        "an unsatisfied write concern other than a late majority is ignored",
        '            if concern.get("code") not in LATE:\n                raise SinkUnavailable(',
        '            if concern.get("code") not in LATE and not document:\n                raise SinkUnavailable(',
        tests=_COMMANDER,
    ),
    Fault(
        "an unsatisfied write concern of a DDL is ignored",
        '            if unacknowledged and unacknowledged.get("code") in LATE:\n'
        "                raise stalled(self._client, str(command))\n"
        "            if unacknowledged:\n"
        "                raise OperationFailure(",
        "            if unacknowledged and not reply:\n                raise OperationFailure(",
        tests=(_CONCERNS,),
    ),
    Fault(
        "the target's majority is not awaited",
        "while not (point := self._majority(doing)).has(*written):",
        "while not (point := self._majority(doing)).has(*written) and point.behind is None:",
        tests=_COMMANDER,
    ),
    Fault(
        "a command is sent after the permit has ended",
        '        if allowed <= 0:\n            raise FencedError(f"{doing}: the permit',
        '        if allowed < 0:\n            raise FencedError(f"{doing}: the permit',
        tests=_COMMANDER,
    ),
    Fault(
        "a command may take longer than its permit",
        "return min(allowed, max(self._deadline - time.monotonic(), _FIRST_PAUSE))",
        "return max(self._deadline - time.monotonic(), _FIRST_PAUSE)",
        tests=_COMMANDER,
    ),
    Fault(
        "rows that wait for the majority together are confirmed by any primary",
        "if self._deferred is not None and self._deferred[1] != written[1]:",
        "if self._deferred is None:",
        tests=_COMMANDER,
    ),
    Fault(
        "rows that wait for the majority together are not confirmed",
        "        else:\n            self._confirm(database)\n        finally:",
        "        finally:",
        tests=_COMMANDER,
    ),
    Fault(
        "a duplicate in a replay is no insert that was applied",
        "case Resolution.REPLACE:",
        "case Resolution.REPLACE if not replay:",
        tests=_ROWS,
    ),
    Fault(
        "a refused unique value does not wait for its row",
        "            case Resolution.WAIT:\n",
        "            case Resolution.WAIT if replay:\n",
        tests=("tests/unit/sink/mongodb/rows/test_write_run.py",),
    ),
    Fault(
        "later changes of a waiting row are written before it",
        "return _without(batch, self._waiting.queue) if self._waiting else batch",
        "return batch",
        tests=_ROWS,
    ),
    Fault(
        "an update whose document is missing is no divergence",
        "            self._doubts.diverged([change for change in missing if not self._doubts.noted_newer(change)], MISSING)\n",
        "            pass\n",
        tests=_DIVERGED,
    ),
    Fault(
        "the later changes of a row are not applied again after one that was applied late",
        "        self._apply(replace(batch, changes=of_its_row, command=None, ordered=True), again=True)\n",
        "        del batch, of_its_row\n",
        tests=_DIVERGED,
    ),
    Fault(
        "a value is taken before an earlier change frees it",
        "            if now and level < freed:\n                level = freed\n",
        "",
        tests=_DEPENDENT,
    ),
    Fault(
        "an update of a unique value counts as any other",
        '    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")\n',
        '    return one == other and one.startswith(f"{other}.")\n',
        tests=_DEPENDENT,
    ),
    Fault(
        "a capped collection gets its inserts before the deletes",
        "_DELETES_FIRST = (2, 1, 0)\n",
        "_DELETES_FIRST = (0, 1, 2)\n",
        tests=_DEPENDENT,
    ),
    Fault(
        "the inserts of a capped collection have no order",
        "(stage == 1 or (stage == 2 and capped))",
        "(stage == 1)",
        tests=_DEPENDENT,
    ),
    Fault(
        "a condition of a partial index is no part of its key",
        '            paths.update(map(_unnumbered, _conditions(index.get("partialFilterExpression", {}))))\n',
        "",
        tests=("tests/unit/sink/test_dependence.py",),
    ),
    Fault(
        "a new field that is a unique value is set after the others",
        "    adding = [change for change in updates if adds(change) and _may_follow(batch, change)]\n",
        "    adding = [change for change in updates if adds(change)]\n",
        tests=("tests/unit/sink/mongodb/rows/test_bulk_plan.py",),
    ),
    Fault(
        "a row that changed since it was read is replaced",
        """    unchanged = {} if still is None else {"$expr": {"$eq": [still, 0]}}\n""",
        "    unchanged: dict[str, Any] = {}\n",
        tests=("tests/component/sink/mongodb/rows/test_deep_updates.py",),
    ),
    Fault(
        "a new field is set where it is already",
        '    where = {name: {"$exists": False} for name in update.absent}\n',
        "    where: dict[str, Any] = {}\n",
        tests=("tests/unit/sink/mongodb/rows/test_bulk_command.py",),
    ),
    Fault(
        "a replayed update is rejected for a state that never was at the source",
        "        elif replay and change.type is RowType.UPDATE and self._letters is None and self._fetch is not None:\n",
        "        elif not replay and change.type is RowType.UPDATE and self._letters is None and self._fetch is not None:\n",
        tests=_DIVERGED,
    ),
    Fault(
        "what a replay skipped makes no table unsettled",
        "                self._unexplained.unsettled.add(table)\n                self._state.result.unsettled.add(table)\n",
        "                self._unexplained.unsettled.add(table)\n",
        tests=_DIVERGED,
    ),
    Fault(
        "changes of one document are sent in one unordered command",
        "        if place == (level, before):\n            repeated.add(place)\n",
        "",
        tests=("tests/unit/sink/mongodb/rows/test_bulk_plan.py",),
    ),
    Fault(
        "a delete comes before an earlier update of its document",
        "_PHASES = {RowType.INSERT: 0, RowType.UPDATE: 1, RowType.REPLACE: 1, RowType.DELETE: 2}",
        "_PHASES = {RowType.INSERT: 0, RowType.UPDATE: 2, RowType.REPLACE: 2, RowType.DELETE: 1}",
        tests=("tests/unit/sink/mongodb/rows/test_bulk_plan.py",),
    ),
    Fault(
        "rows do not wait for the majority",
        '_MAJORITY = {"w": "majority"}\n_NO_UPDATE =',
        '_MAJORITY = {"w": 1}\n_NO_UPDATE =',
        tests=("tests/unit/sink/mongodb/rows/test_bulk_command.py",),
    ),
    Fault(
        "a pipeline sets a zero timestamp",
        "    return isinstance(edit, SetField) and edit.value.kind == TIMESTAMP and not any(edit.value.content)\n",
        "    return isinstance(edit, SetField) and edit.value.kind == TIMESTAMP and not edit.value.content\n",
        tests=("tests/unit/sink/mongodb/rows/test_update_translation.py",),
    ),
    Fault(
        "a row that is edited without a transaction does not wait for the majority",
        "    return _alone(change, _rewriting(change, own_filter(change, unchanged), document))\n",
        "    return change.table.name.db, _rewriting(change, own_filter(change, unchanged), document)\n",
        tests=(_CONCERNS,),
    ),
    Fault(
        "copied documents do not wait for the majority",
        '_MAJORITY = {"w": "majority"}\n_MOST =',
        '_MAJORITY = {"w": 1}\n_MOST =',
        tests=(_CONCERNS,),
    ),
    Fault(
        "a document that looks like operators is taken for them",
        '(b"$" in raw and any(name.startswith(b"$") for name, _, _, _ in elements(raw))):',
        '(b"$" in raw and all(name.startswith(b"$") for name, _, _, _ in elements(raw))):',
        tests=("tests/unit/sink/mongodb/rows/test_bulk_command.py",),
    ),
    Fault(
        "a path of a dotted name is set as if it were nested",
        'special = raw.get("truncatedArrays") or raw.get("disambiguatedPaths")',
        'special = raw.get("truncatedArrays")',
        tests=("tests/unit/sink/mongodb/rows/test_update_translation.py",),
    ),
    Fault(
        "a letter is closed before its row is durable",
        "        self._write_held()\n        self._give_up()\n        self._end_letters()\n",
        "        self._end_letters()\n        self._write_held()\n        self._give_up()\n",
        tests=_LETTERS,
    ),
    Fault(
        "a change of a row with a letter is sent",
        "        self._held[change.table.id, row] = change._replace(type=RowType.UPDATE, document=None, update=None)\n"
        "        return True",
        "        self._held[change.table.id, row] = change._replace(type=RowType.UPDATE, document=None, update=None)\n"
        "        return False",
        tests=("tests/unit/sink/mongodb/letters/test_open_letters.py",),
    ),
    Fault(
        "a letter is written without the majority",
        '"updates": [statement], "writeConcern": {"w": "majority"}}',
        '"updates": [statement], "writeConcern": {"w": 1}}',
        tests=("tests/unit/sink/mongodb/letters/test_open_letters.py",),
    ),
    Fault(
        "a letter that the target refuses counts as written",
        '        if errors := reply.get("writeErrors"):\n            refused = (',
        '        if (errors := reply.get("writeErrors")) and not rows:\n            refused = (',
        tests=("tests/unit/sink/mongodb/letters/test_open_letters.py",),
    ),
    Fault(
        "a request to try a row again is ended though a later one was made",
        "                self._requests.append(asked)\n                self._held.setdefault(",
        '                self._requests.append({"_id": asked["_id"]})\n                self._held.setdefault(',
        tests=("tests/unit/sink/mongodb/letters/test_open_letters.py",),
    ),
    Fault(
        "a table that another client made counts as created",
        "return DdlEffect.PRESENT if same_options(ddl.options, now.options, ttl) else DdlEffect.UNCLEAR",
        "return DdlEffect.PRESENT",
        tests=_DDL,
    ),
    Fault(
        "a table that another client made is dropped",
        "        if there is not None and not _same_table(before.tables.get(name), there):\n"
        "            return DdlEffect.UNCLEAR\n",
        "",
        tests=_DDL,
    ),
    Fault(
        "a rename that was done is sent again",
        "    if old_before.uuid == new_now.uuid:\n        return DdlEffect.PRESENT\n",
        "    if old_before.uuid == new_now.uuid:\n        return DdlEffect.ABSENT\n",
        tests=_DDL,
    ),
    Fault(
        "an effect counts that an election may take back",
        "if term == reached if term is not None else seen == self._look(asked):",
        "if term is not None or seen == self._look(asked):",
        tests=("tests/unit/sink/mongodb/ddl/test_durable_observation.py",),
    ),
    Fault(
        "a DDL is sent after the owner's session",
        '        if permitted <= 0:\n            raise FencedError(f"{command}: not sent',
        '        if permitted < 0:\n            raise FencedError(f"{command}: not sent',
        tests=(_CONCERNS,),
    ),
    Fault(
        "an index is dropped while another build of it waits",
        '        if reply["cursor"]["firstBatch"]:\n            raise SinkUnavailable(\n                f"dropIndexes',
        '        if not reply["cursor"]:\n            raise SinkUnavailable(\n                f"dropIndexes',
        tests=_DDL,
    ),
    Fault(
        "a drop removes the rows of tables that share its name",
        "names = (*(() if others else (target,)), *((copy,) if copy else ()))",
        "names = (target, *((copy,) if copy else ()))",
    ),
    Fault(
        "a dropped database takes tables of others with it",
        "names = tuple(sorted(doomed - staying))",
        "names = tuple(sorted(doomed))",
    ),
    Fault(
        "a rename out of the filter leaves its table at the target",
        "    if source is not None:\n        return _drop(old, source, routing)\n    if target is None:",
        "    if target is None:",
    ),
    Fault(
        "an unreachable target is a permanent error",
        "    lost = isinstance(error, ConnectionFailure | ProtocolError | AutoReconnect)\n",
        "    lost = isinstance(error, ProtocolError | AutoReconnect) and not isinstance(error, ConnectionFailure)\n",
    ),
    Fault(
        "missing rights at the target are retried for ever",
        "        case OperationFailure() if unauthorized_code(error.code, str(error)):\n            return SinkRefused(",
        "        case OperationFailure() if unauthorized_code(error.code, str(error)):\n            return SinkUnavailable(",
    ),
    Fault(
        "the target's answer is not redacted",
        'return redacted(in_one_line(str(error), details | {"code": code} if code is not None else details))',
        'return in_one_line(str(error), details | {"code": code} if code is not None else details)',
    ),
    Fault(
        "a manifest whose number is taken is lost",
        "while not self._store.create(manifest_name(self._epoch, self._number), manifest):",
        "if not self._store.create(manifest_name(self._epoch, self._number), manifest):",
        tests=_FILES,
    ),
    Fault(
        "a node that counts as gone commits",
        "if content is not None and Manifest.parse(content).sealed:",
        "if content is not None and not content:",
        tests=_LEFTOVERS,
    ),
    Fault(
        "files of a node that lives are removed",
        "if epoch not in self._swept and gone(int(epoch))}",
        "if epoch not in self._swept}",
        tests=_LEFTOVERS,
    ),
    Fault(
        "files by table of a node that lives are removed",
        "epoch not in self._swept and gone(int(epoch))):",
        "epoch not in self._swept):",
        tests=("tests/component/sink/files/test_hive_layout.py",),
    ),
    Fault(
        "a file by table is open for each table",
        "        if len(self._open) >= _MOST_OPEN:\n",
        "        if len(self._open) >= _HELD_BYTES:\n",
        tests=("tests/component/sink/files/test_hive_layout.py",),
    ),
    Fault(
        "files are removed before their node is sealed",
        "        while not self._store.create(manifest_name(epoch, number), seal):",
        "        while self._store.read(manifest_name(epoch, number)) is not None:",
        tests=_LEFTOVERS,
    ),
    Fault(
        "a file of a directory is not durable when it is committed",
        "            os.fsync(self._file.fileno())\n            self._beside.rename(self._path)\n            _sync(self._path.parent)",
        "            self._beside.rename(self._path)",
        tests=("tests/unit/sink/messages/files/test_directory.py",),
    ),
    Fault(
        "a put-create in a directory replaces what is there",
        "                    os.link(beside, final)\n",
        "                    os.replace(beside, final)\n",
        tests=("tests/unit/sink/messages/files/test_directory.py",),
    ),
    Fault(
        "a put-create in a bucket has no condition",
        '                        IfNoneMatch="*",\n',
        "",
        tests=_STORES,
    ),
    Fault(
        "a put whose answer was lost counts as another's",
        "                        return _token_of(self._client(), self._bucket, self._key(name)) == token",
        "                        return False",
        tests=(*_STORES, "tests/component/sink/files/test_bucket_trouble.py"),
    ),
    Fault(
        "a watermark does not wait until the logs of gone nodes are ended",
        "if marks is None or (self._sweeper is not None and self._ended.answer is None):",
        "if marks is None:",
        tests=("tests/unit/owner/test_chores.py",),
    ),
    Fault(
        "an owner forgets the commits of a node whose report is gone",
        "            self._counts[epoch] = max(count, self._counts.get(epoch, 0))",
        "            self._counts = {epoch: count}",
        tests=("tests/unit/owner/test_chores.py",),
    ),
    Fault(
        "a committer that is opened again takes back its commits",
        "            report = replace(report, committed=dict(counts))",
        "            report = replace(report, committed=dict(counts[-1:]) and report.committed)",
        tests=("tests/unit/processor/test_commits.py",),
    ),
    Fault(
        "messages that fail are counted as sent",
        "        if lent.failed:\n            error, topic = lent.failed[0]",
        "        if len(lent.failed) > 1:\n            error, topic = lent.failed[0]",
        tests=_TOPICS,
    ),
    Fault(
        "a run of messages ends before they are acknowledged",
        "        self._wait(lent, full=False)\n        self._lent = None",
        "        self._lent = None",
        tests=_TOPICS,
    ),
    Fault(
        "a message is sent after the permit has ended",
        "        self._permit()\n        lent = self._lent\n        if lent is None:\n            self._taken_from",
        "        lent = self._lent\n        if lent is None:\n            self._taken_from",
        tests=_TOPICS,
    ),
    Fault(
        "rows with equal numbers as keys go to two partitions",
        "    found = row_key(document_key)\n    if found is document_key:\n        return document_key\n",
        "    if only_id(document_key):\n        return document_key\n    found = row_key(document_key)\n",
    ),
    Fault(
        "a text that has no JSON stops all tables",
        'or create another changefeed with {exact}"\n    ).about(table.id)',
        'or create another changefeed with {exact}"\n    )',
        tests=("tests/component/sink/test_message_contract.py",),
    ),
    Fault(
        "a watermark has no table that is behind",
        "watermark_message(self._sender.feed, at, behind)",
        "watermark_message(self._sender.feed, at, {})",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "many tables that are behind are left out of a watermark",
        "at, behind = min([at, *behind.values()]), {}",
        "behind = {}",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "a DDL goes to no topic of its rows",
        "                addressed += ((topic, number, message) for number in range(there.get(topic, 0)))\n",
        "                addressed += ((topic, number, message) for number in range(there.get(topic, 0) - 1))\n",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "a topic that was created again stays refused",
        "made = sender.make([ddl.name], anew=True)",
        "made = sender.make([ddl.name])",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "two tables share a topic that is compacted",
        "if has not in (None, str(name), str(before)):",
        "if False:",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "no client's limit holds for a message that its topic takes",
        "min(self._facts.limit(topic), MOST_BYTES)",
        "self._facts.limit(topic)",
        tests=("tests/unit/sink/messages/kafka/test_kafka_writer.py",),
    ),
    Fault(
        "topics of another changefeed are taken",
        "if found != expected.encode() and self.options.existing is not Existing.APPEND:",
        "if not found and self.options.existing is not Existing.APPEND:",
        tests=_KAFKA_OWNER,
    ),
    Fault(
        "a topic that was deleted and created again is written to",
        "if (known := self._ids.setdefault(topic, found[topic].id)) != found[topic].id:",
        "if (known := self._ids.setdefault(topic, found[topic].id)) not in self._ids.values():",
        tests=("tests/component/sink/kafka/test_recreated_topic.py",),
    ),
    Fault(
        "a topic that was deleted and created again is read as the whole",
        "                    self._rows.ids.setdefault(topic, self._ids[topic])\n",
        "                    self._ids.pop(topic)\n",
        tests=("tests/component/sink/kafka/test_recreated_topic.py",),
    ),
    Fault(
        "a delete of Debezium has no tombstone",
        "if type is RowType.DELETE and self._tombstones:",
        "if type is RowType.DELETE and not self._tombstones:",
    ),
    Fault(
        "a field that is set again at the end is told as unset, too",
        "found = append if removed[at + _TEXT_AT : end - 1] in names else unset",
        "found = unset if removed[at + _TEXT_AT : end - 1] in names else unset",
        tests=("tests/unit/sink/messages/test_row_message.py",),
    ),
    Fault(
        "topics of rows are compacted as the brokers do by default",
        'settings = {CLEANUP: "delete", **dict(options.settings)}',
        "settings = dict(options.settings)",
        tests=("tests/component/sink/kafka/test_troubled_kafka.py",),
    ),
    Fault(
        "nothing says that a table has a row from later, when it is written as the source has it now",
        "        self._rows.ahead.note(self._rows.commander, whole.table.id, read_ts)\n",
        "",
        tests=("tests/component/sink/mongodb/test_sync_marks.py",),
    ),
    Fault(
        "rows that go one by one have the time of one command together",
        "        self._state.replay = before\n        self._commander.go_on()\n",
        "        self._state.replay = before\n",
        tests=("tests/unit/sink/mongodb/rows/test_many_single_rows.py",),
    ),
    Fault(
        "what a slow link cannot carry within a permit is loaded again as it is",
        "divisible=len(documents) > 1 and not self._once",
        "divisible=False",
        tests=("tests/component/sink/mongodb/test_slow_target.py",),
    ),
    Fault(
        "a capped table gets what was sent in vain in halves, and so twice",
        "divisible=len(documents) > 1 and not self._once",
        "divisible=len(documents) > 1",
        tests=("tests/component/sink/mongodb/test_slow_target.py",),
    ),
    Fault(
        "what is written after an attempt that was given up has its names",
        "self._open, self._written, self._attempt = None, [], secrets.token_hex(12)",
        "self._open, self._written = None, []",
        tests=("tests/component/sink/files/test_hive_layout.py",),
    ),
    Fault(
        "a mark that comes late changes a sync point that is done",
        '{"_id": self._id(ts), "done": {"$ne": True}}',
        '{"_id": self._id(ts)}',
        tests=("tests/component/sink/mongodb/test_sync_marks.py",),
    ),
    Fault(
        "an index that a DDL brings during a copy is built at once",
        'case _, "createIndexes" | "dropIndexes" | "modify" if table in self._indexes:',
        'case _, "dropIndexes" | "modify" if table in self._indexes:',
        tests=("tests/component/sink/test_replica.py",),
    ),
    Fault(
        "a row that a unique index keeps out of a copy is given up",
        "                self._state.result.blocked[table] = told(chain.changes[0], chain.refusal)\n",
        "",
        tests=("tests/component/sink/test_replica.py",),
    ),
    Fault(
        "a replica that goes on forgets the copy of a table that has come back",
        "        self._copying = set(self._stored.place.copying)\n",
        "",
        tests=("tests/component/sink/test_replica.py",),
    ),
)
