"""The driver's texts become one line with the members, the cause and the remedy."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.driver_text import in_one_line, unreachable
from tests.unit.changefeed import driver_texts as real

_NOT_PRIMARY = real.reply(10107, "NotWritablePrimary", "not primary")
_NO_PRIMARY = (
    "the source has no primary (db1:27017: secondary; db2:27017: Connection refused; db3:27017: timed out); "
    "replication goes on when a majority of its members has elected one"
)
_BROKEN_HANDSHAKE = (
    "SSL handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006)"
)
_CHECK = "check that its members run and that this node can connect to them"


@pytest.mark.parametrize(
    ("text", "details", "expected"),
    [
        (
            real.ALL_REFUSE,
            None,
            f"the source cannot be reached: db1:27017: timed out; db2:27017, db3:27017: Connection refused; {_CHECK}",
        ),
        (real.NO_PRIMARY, None, _NO_PRIMARY),
        (real.NO_PRIMARY_TO_READ, None, _NO_PRIMARY),
        (
            real.OTHER_SET,
            None,
            "the source has no member of replica set 'other': correct replicaSet in its connection string",
        ),
        (
            real.UNKNOWN_HOST,
            None,
            f"the source cannot be reached: no.such.host:27017: Name or service not known; {_CHECK}",
        ),
        (
            real.NO_TLS,
            None,
            f"the source cannot be reached: db1:27017: {_BROKEN_HANDSHAKE}; {_CHECK}",
        ),
        (
            real.TIMED_OUT,
            None,
            "the source did not answer in time: db1:27017; check whether it is overloaded, or cut off from this node",
        ),
        (
            "operation would exceed time limit, remaining timeout:0.04663 <= network round trip time:0.20553 (configured timeouts: ...)",
            {"ok": 0, "errmsg": "operation would exceed time limit, remaining timeout:0.04663", "code": 50},
            (
                "the source did not answer in time: less time is left than its last answer took; "
                "check whether it is overloaded, or cut off from this node"
            ),
        ),
        (real.CLOSED, None, f"the source cannot be reached: db1:27017: connection closed; {_CHECK}"),
        (
            real.with_reply(_NOT_PRIMARY),
            _NOT_PRIMARY,
            "the source's primary is changing: not primary (code 10107, NotWritablePrimary); replication goes on with the next primary",
        ),
    ],
)
def test_an_error_of_the_connection(text: str, details: dict[str, Any] | None, expected: str) -> None:
    assert unreachable("source", text, details) == expected


def test_an_answer_of_the_server_keeps_its_code() -> None:
    said = real.reply(64, "WriteConcernFailed", "waiting for replication\n timed out")
    assert in_one_line(real.with_reply(said), said) == "waiting for replication timed out (code 64, WriteConcernFailed)"
    assert in_one_line(real.with_reply(said)) == "waiting for replication timed out"
    assert in_one_line("it broke", {}) == "it broke"


def test_a_definition_that_an_answer_repeats_is_cut() -> None:
    said = in_one_line("", {"errmsg": f"bad index {{ a: {'x' * 1_600_000} }}", "code": 67})
    assert said.startswith("bad index { a: xxx")
    assert "(1,596,017 more characters)" in said
    assert len(said) < 4_100


def test_a_refused_command_is_named_and_not_repeated() -> None:
    dump = '{ find: "a", filter: { _id: 7 }, lsid: { id: UUID("5e") }, $clusterTime: { clusterTime: Timestamp(1, 2) } }'
    refused = real.reply(13, "Unauthorized", f"not authorized on shop to execute command {dump}")
    assert in_one_line(refused["errmsg"], refused) == (
        "not authorized on shop to execute command find (code 13, Unauthorized)"
    )


def test_repeated_errors_give_the_same_text_although_topology_ids_differ() -> None:
    later = real.NO_PRIMARY.replace("6b02a553b2c1421c0edf0de1", "7c13").replace("rtt: 0.0023", "rtt: 0.9")
    assert in_one_line(later) == in_one_line(real.NO_PRIMARY)


def test_a_member_that_has_not_answered_yet_is_named() -> None:
    text = (
        "No servers found yet, Timeout: 5.0s, Topology Description: <TopologyDescription id: 6b02, topology_type: Unknown, servers: "
        "[<ServerDescription ('db1', 27017) server_type: Unknown, rtt: None>]>"
    )
    assert in_one_line(text) == "No servers found yet (db1:27017: no answer yet)"
