"""Faults of the room `coordination`."""

from __future__ import annotations

from tests.mutants.fault import Fault

COORDINATION = (
    Fault(
        "a fenced write does not compare its writer's turn",
        "fence = (CreateRevIs(self._key, self.epoch), ModRevIs(self._key, turn))",
        "fence = (CreateRevIs(self._key, self.epoch),)",
    ),
    Fault(
        "an unknown outcome of this turn is not settled",
        "return self.begin_turn() if self._unknown_turn >= self._turn else self._last_rev",
        "return self.begin_turn() if self._unknown_turn > self._turn else self._last_rev",
    ),
    Fault(
        "a key that another epoch created is taken as the writer's own",
        "if found is None or found.create_rev != self.epoch:",
        "if found is None:",
    ),
    Fault(
        "a write without an epoch does not compare what was read",
        "    result = etcd.txn(compares, ops)\n    if isinstance(result, Refused):",
        "    result = etcd.txn((), ops)\n    if isinstance(result, Refused):",
    ),
    Fault(
        "a transaction may have more bytes than etcd takes",
        "if batch and (len(batch) + len(group) > MAX_TXN_OPS or size + cost > most_bytes):",
        "if batch and len(batch) + len(group) > MAX_TXN_OPS:",
        tests=("tests/unit/coordination/test_fenced.py",),
    ),
    Fault(
        "a session is counted from the answer to its keep-alive",
        "self._clock = self._clock.renewed(now, ttl)",
        "self._clock = self._clock.renewed(self._monotonic(), ttl)",
    ),
    Fault(
        "a session is alive until its lease ends, without a margin",
        "return self.renewed_at + (self.ttl - self.margin).total_seconds()",
        "return self.renewed_at + self.ttl.total_seconds()",
    ),
    Fault(
        "a closed session is not lost before its lease is revoked",
        '        with self._lock:\n            self._lose("closed")\n        self._wake.set()',
        "        self._wake.set()",
    ),
    Fault(
        "the line of candidates is in the order of their last writes",
        "for kv in sorted(line.items, key=lambda kv: kv.create_rev):",
        "for kv in sorted(line.items, key=lambda kv: kv.mod_rev):",
    ),
    Fault(
        "a new owner does not write before it first reads",
        "                store.begin_turn()\n                return store",
        "                return store",
    ),
    Fault(
        "the mirror's watch begins one revision too late",
        "self._etcd.watch(self._prefix, self._replica.revision + 1, self._below)",
        "self._etcd.watch(self._prefix, self._replica.revision + 2, self._below)",
    ),
    Fault(
        "an etcd that was restored from a backup is followed",
        "if snapshot.revision < self._replica.revision:",
        "if snapshot.revision < 0:",
    ),
    Fault(
        "a group of keys is changed while a view has it",
        "if group is None or name in self._shared:",
        "if group is None:",
    ),
    Fault(
        "a report's checkpoint is written before the tables that are behind it",
        "return [*batches(widened, _MOST_BYTES), [Put(main, encode(value))], *batches(narrowed, _MOST_BYTES)]",
        "return [[Put(main, encode(value))], *batches(widened, _MOST_BYTES), *batches(narrowed, _MOST_BYTES)]",
    ),
    Fault(
        "the revision of an assignment is that of its first part",
        "rev=max((kv.mod_rev for kv in source.values()), default=0),",
        "rev=min((kv.mod_rev for kv in source.values()), default=0),",
    ),
    Fault(
        "who needs the keys apart waits for the end of a poll",
        "        if self._lacks_apart:\n            self._end_watch()\n",
        "        return\n",
    ),
    Fault(
        "a watch that was ended for the keys apart counts as an outage",
        "            if self._stopping.is_set() or to_take_in != self._lacks_apart:\n",
        "            if self._stopping.is_set():\n",
    ),
    Fault(
        "an old failure counts though a later write was accepted",
        "        self._failing_since = None\n        if self.trouble",
        "        if self.trouble",
    ),
)
