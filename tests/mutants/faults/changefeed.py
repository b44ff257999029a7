"""Faults of the room `changefeed`."""

from __future__ import annotations

from tests.mutants.fault import Fault

CHANGEFEED = (
    Fault(
        "a table is held by its last open DDL",
        "            held.setdefault(table, record.position)\n",
        "            held[table] = record.position\n",
        tests=("tests/unit/owner/ddl",),
    ),
    Fault(
        "an index that is built in the background holds its table",
        "if record.open and not record.background and record.position < resolved)",
        "if record.open and record.position < resolved)",
        tests=("tests/unit/owner/ddl",),
    ),
    Fault(
        "the first pattern that matches a table decides",
        "return next((not pattern.negated for pattern in reversed(self) if pattern.matches(name)), False)",
        "return next((not pattern.negated for pattern in self if pattern.matches(name)), False)",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "the first pattern of a long list that matches a table decides",
        "last = max((number for number in self.like(name)",
        "last = min((number for number in self.like(name)",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "a pattern that begins with a wildcard is found by what stands before its first dot",
        "    if not db.literal:\n        return db.before\n",
        "",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "a changefeed that starts ahead of its source is given an end before its start",
        "    _check_begins_before(info, end)\n",
        "",
        tests=("tests/unit/admin/desired",),
    ),
    Fault(
        "what a verb writes is not read back",
        '    if read != record:\n        raise InvariantError(f"{key}: expected to read',
        '    if False:\n        raise InvariantError(f"{key}: expected to read',
        equivalent="no verb returns a record that is read as another one; the property test of the verbs keeps it so",
    ),
    Fault(
        "an unreadable changefeed loses its name before its tasks have ended",
        "elif now - self._still_since.setdefault(id, now) >= self._margin.total_seconds():",
        "else:",
        tests=("tests/unit/owner/test_unreadable.py",),
    ),
    Fault(
        "a node whose record cannot be read gets tables",
        "            draining=True,\n            health=NodeHealth(",
        "            draining=False,\n            health=NodeHealth(",
        tests=("tests/unit/coordination/test_decoded.py",),
    ),
    Fault(
        "a rename is in scope by its old name only",
        "for name in (event.table, event.renamed_to) if name is not None and self.wants_table(name)]",
        "for name in (event.table,) if name is not None and self.wants_table(name)]",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "an event whose document is not known is ignored",
        "return document is not None and expression.accepts(document)",
        "return document is None or expression.accepts(document)",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "the last route that matches a table decides",
        "return min((number for number in self.like(name) if self[number].matches(name)), default=None)",
        "return max((number for number in self.like(name) if self[number].matches(name)), default=None)",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "two tables come under one name without a rule that asks for it",
        "return route is not None and route.fan_in and route is self._of(other)",
        "return route is not None and route is self._of(other)",
        tests=("tests/unit/changefeed/config/tables",),
    ),
    Fault(
        "a changefeed retries for ever without a pause",
        "case State.WARNING if self.since_at is not None and now - self.since_at >= PATIENCE:",
        "case State.WARNING if self.since_at is None and self.attempts:",
        tests=("tests/unit/changefeed/test_lifecycle.py",),
    ),
    Fault(
        "a paused changefeed goes on after a back-off",
        "return Lifecycle(state=State.STOPPED, error=self.error, since_at=now)",
        "return replace(self, error=self.error, since_at=now)",
        tests=("tests/unit/changefeed/test_lifecycle.py",),
    ),
    Fault(
        "a fenced error fails the changefeed",
        "if not error.lasting or self.state in",
        "if self.state in",
        tests=("tests/unit/changefeed",),
    ),
    Fault(
        "a removed entry stays in a changed map",
        "                del shards._parts[part][table]\n                shards._size -= 1\n",
        "                shards._size -= 1\n",
        tests=("tests/unit/changefeed/test_shared_values.py", "tests/unit/changefeed/test_shards.py"),
    ),
    Fault(
        "a changed map changes the map before",
        "                    shards._parts[part] = dict(shards._parts[part])\n                del",
        "                    pass\n                del",
        tests=("tests/unit/changefeed/test_shards.py",),
    ),
    Fault(
        "an index made unique keeps its preparation",
        '                fields["unique"] = value\n                fields.pop("prepareUnique", None)\n',
        '                fields["unique"] = value\n',
        tests=("tests/unit/schema_store/test_definition.py",),
    ),
    Fault(
        "texts that are no UTF-8 are ordered by what they were decoded to",
        "    15: encoded_text,\n",
        "",
        tests=("tests/component/source/tables/test_key_order.py",),
    ),
)
