"""What stands in a topic for a message that is too large for it."""

from __future__ import annotations

import json
import zlib

from sink.messages.message_format import KeyedMessage, claim_check, claim_name, key_only

_MESSAGE = KeyedMessage(
    b'{"_id": {"$numberLong": "7"}}',
    b'{"op": "i", "after": "very long"}',
    [
        ("sluice.v", b"1"),
        ("sluice.op", b"i"),
        ("sluice.table", b"ab12"),
        ("sluice.schema", b"0B"),
        ("sluice.pos", b"0A"),
    ],
)


def test_only_the_key_and_the_headers_stay() -> None:
    small = key_only(_MESSAGE)
    assert small.value is not None
    assert json.loads(small.value) == {"v": 1, "large": "key_only", "bytes": 33}
    assert (small.key, small.headers) == (_MESSAGE.key, [*_MESSAGE.headers, ("sluice.large", b"key_only")])


def test_a_claim_check_says_where_the_message_is() -> None:
    small = claim_check(_MESSAGE, "/srv/claims/claim/1")
    assert small.value is not None
    about = {"crc32": zlib.crc32(_MESSAGE.value or b""), "claim": "/srv/claims/claim/1"}
    assert json.loads(small.value) == {"v": 1, "large": "claim_check", "bytes": 33, **about}
    assert dict(small.headers)["sluice.large"] == b"claim_check"


def test_the_name_of_a_claim_follows_from_headers_and_key_alone() -> None:
    name = claim_name(_MESSAGE)
    assert name == claim_name(claim_check(_MESSAGE, "elsewhere"))
    assert name.startswith("claim/ab12/0A.")
    assert name != claim_name(_MESSAGE._replace(key=b"other"))
