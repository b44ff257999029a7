"""Faults of the room `pyspark_sluice`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_BATCHES = ("tests/unit/pyspark_sluice/test_batches.py",)
_UNION = ("tests/component/pyspark_sluice/test_feed_batches.py",)

PYSPARK_SLUICE = (
    Fault(
        "a batch ends inside a transaction",
        "            return _after_time(last)\n",
        '            return position_of(f"{last}.400000{0:08X}")\n',
        tests=_BATCHES,
    ),
    Fault(
        "a batch with the last rows of a limit takes one file more",
        "    return bool(limit) and value > limit",
        "    return bool(limit) and value > limit + 1",
        tests=_BATCHES,
    ),
    Fault(
        "a table that is behind is passed by a batch",
        "    return before.joined(newest.met(Watermark(end)))",
        "    return Watermark(max(before.at, min(newest.at, end)))",
        tests=_BATCHES,
    ),
    Fault(
        "a file shows all that it has of a table",
        "        within = pc.and_(pc.greater_equal(pos, start), pc.less(pos, end))",
        "        within = pc.is_valid(pos)",
        tests=_UNION,
    ),
    Fault(
        "the checkpoint of another life is read on",
        "        if read != found:",
        "        if read.feed != found.feed:",
        tests=_UNION,
    ),
    Fault(
        "a feed that gets the place of another is read on by a query that runs",
        "        self._check_life(self._life, self._identity())\n        return newest\n",
        "        return newest\n",
        tests=_UNION,
    ),
    Fault(
        "a rename from a name that is left out is told as any other",
        'wants(fields["ns"]) != wants(fields["to"])',
        'wants(fields["ns"]) and not wants(fields["to"])',
        tests=_UNION,
    ),
    Fault(
        "a DDL that the user has seen stops the query again",
        "at <= passed):",
        "at < passed):",
        tests=_BATCHES,
    ),
)
