"""Faults of the room `verify`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_VERIFICATION = ("tests/unit/verify", "tests/component/verify/test_verification.py")

VERIFY = (
    Fault(
        "a table counts as compared whose point was too old to be read to its end",
        "            if counted.missed:\n",
        "            if counted.missed and counted.differences:\n",
        tests=("tests/unit/verify",),
    ),
    Fault(
        "a document that only the target has is no difference",
        "                self._add(DifferenceKind.EXTRA, key)\n                continue",
        "                continue",
    ),
    Fault(
        "a document that the target lacks is no difference",
        "            self._add(DifferenceKind.MISSING, known.key)\n        return Joined(",
        "            pass\n        return Joined(",
    ),
    Fault(
        "documents that differ in their last bytes are equal",
        "                running.update(canonical(document))\n",
        "                running.update(canonical(document)[:-2])\n",
        tests=("tests/unit/verify",),
    ),
    Fault(
        "a difference counts that replication has not passed",
        "            if number and self.wait() is Passed.OVERDUE:",
        "            if number > 1 and self.wait() is Passed.OVERDUE:",
    ),
    Fault(
        "a row that changed between two looks is a difference",
        "                if pending[look.key] == state:\n                    found.append(",
        "                if pending[look.key] is not None:\n                    found.append(",
    ),
    Fault(
        "of tables that share a name only the first is compared",
        "        for reader in self.sources:\n            for batch in reader.batches(keys):\n                join.take_source(batch)\n",
        "        for reader in self.sources[:1]:\n            for batch in reader.batches(keys):\n                join.take_source(batch)\n",
    ),
    Fault(
        "a comparison that ended early counts as complete",
        "complete=self.complete and len(found) <= most)",
        "complete=self.complete)",
    ),
    Fault(
        "a table whose definitions differ has its documents compared",
        "if definition.results[Aspect.TABLE].outcome is not Outcome.EQUAL or pair.sources[0].kind is TableKind.VIEW:",
        "if pair.target is None or pair.sources[0].kind is TableKind.VIEW:",
        tests=_VERIFICATION,
    ),
    Fault(
        "a row of a capped collection is repaired by itself",
        'if any(schema.options.decode().get("capped") for schema in pair.sources):\n        return "the collection is capped',
        'if all(schema.options.decode().get("size") == 0 for schema in pair.sources):\n        return "the collection is capped',
    ),
    Fault(
        "documents in another order of fields are equal",
        "        if reordered:\n            return Result(Outcome.REORDERED, reasons)\n",
        "",
    ),
    Fault(
        "another owner begins a table of a pass anew",
        "if begins and self.place is not None and self.place.key:",
        "if begins and self.place is None:",
    ),
    Fault(
        "a part of a pass ends before it has begun",
        "if self.begun and time.monotonic() >= self.deadline",
        "if time.monotonic() >= self.deadline",
    ),
)
