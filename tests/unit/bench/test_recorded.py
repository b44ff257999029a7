from __future__ import annotations

from collections import Counter

import bson
import pytest

from bench.recorded import replies
from source.raw_event import scan
from source.raw_reply import parse_reply
from source.resume_token import TokenType, decode_token


@pytest.mark.parametrize("kind", ["insert", "update", "mixed"])
def test_recorded_replies_are_read_like_those_of_a_server(kind: str) -> None:
    parsed = [parse_reply(reply) for reply in replies(kind, events=250, per_reply=100)]
    assert [len(reply.events) for reply in parsed] == [100, 100, 50]
    headers = [scan(event) for reply in parsed for event in reply.events]
    assert [header.position for header in headers] == sorted(header.position for header in headers)
    assert parsed[-1].resume_token == headers[-1].token.decode()
    for header in headers[:20]:
        token = decode_token(header.token.decode())
        assert (token.type, token.table, token.cluster_ts) == (TokenType.EVENT, header.table, header.position.ts)


def test_documents_have_the_size_that_was_asked_for() -> None:
    [reply] = replies("insert", events=3, document_bytes=1000)
    headers = [(scan(event), event) for event in parse_reply(reply).events]
    assert [header.full_end - header.full_at for header, _ in headers] == [1000] * 3
    assert bson.decode(headers[0][1])["documentKey"] == {"_id": bson.ObjectId(bytes(12))}


def test_a_mixture_has_five_inserts_three_updates_a_replace_and_a_delete_of_ten() -> None:
    [reply] = replies("mixed", events=100)
    types = Counter(scan(event).type for event in parse_reply(reply).events)
    assert types == {b"insert": 50, b"update": 30, b"replace": 10, b"delete": 10}
