from __future__ import annotations

from typing import Any

import bson
from bson.int64 import Int64
from bson.timestamp import Timestamp

from changefeed.cluster_time import ClusterTime
from source.raw_find import parse_found


def test_the_first_reply_of_a_snapshot_says_its_time_and_later_ones_only_bring_documents() -> None:
    documents: list[dict[str, Any]] = [{"_id": number, "f": "x"} for number in range(12)]
    raw = [bson.encode(document) for document in documents]
    first = {"firstBatch": documents, "id": Int64(7), "ns": "a.b", "atClusterTime": Timestamp(100, 3)}
    found = parse_found(bson.encode({"cursor": first, "ok": 1.0}))
    assert (found.documents, found.cursor_id, found.at_ts) == (raw, 7, ClusterTime(100, 3))
    last = parse_found(bson.encode({"cursor": {"id": Int64(0), "ns": "a.b", "nextBatch": documents[:1]}, "ok": 1.0}))
    assert (last.documents, last.cursor_id, last.at_ts) == (raw[:1], 0, None)
