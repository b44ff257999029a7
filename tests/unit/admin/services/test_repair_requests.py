"""How many rows one request names."""

from __future__ import annotations

from admin.services.verified_changefeed import parts


def test_a_request_is_bounded_in_bytes_and_a_large_key_has_one_of_its_own() -> None:
    small, large = b"k" * 1_000, b"K" * 100_000
    found = list(parts([*([small] * 130), large, small]))
    assert [len(part) for part in found] == [65, 65, 1, 1]
    assert [key for part in found for key in part] == [*([small] * 130), large, small]
    assert list(parts([])) == []
