from __future__ import annotations

import bson
import pytest
from bson.int64 import Int64
from bson.timestamp import Timestamp

from changefeed.bson_bytes import MalformedBson
from changefeed.cluster_time import ClusterTime
from source.stream.events.raw_reply import parse_reply


@pytest.mark.parametrize("batch", ["firstBatch", "nextBatch"])
def test_a_reply_is_taken_apart_without_decoding_its_events(batch: str) -> None:
    events = [bson.encode({"n": number}) for number in range(12)]
    cursor = {
        "id": Int64(-5),
        batch: [bson.decode(event) for event in events],
        "postBatchResumeToken": {"_data": "82AB"},
    }
    reply = parse_reply(bson.encode({"ok": 1.0, "cursor": cursor, "operationTime": Timestamp(7, 2)}))
    assert (reply.cursor_id, reply.resume_token, reply.operation_ts) == (-5, "82AB", ClusterTime(7, 2))
    assert reply.events == events


def test_a_reply_without_a_post_batch_token_says_so() -> None:
    cursor = {"id": Int64(1), "firstBatch": [], "ns": "admin.$cmd.aggregate"}
    assert parse_reply(bson.encode({"cursor": cursor, "operationTime": Timestamp(7, 2)})).resume_token is None


def test_a_reply_of_something_that_is_no_replica_set_is_refused() -> None:
    with pytest.raises(MalformedBson, match="no replica set"):
        parse_reply(bson.encode({"cursor": {"id": Int64(1), "firstBatch": []}}))
