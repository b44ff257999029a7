"""A shuffle returns events unchanged, whatever their size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from processor.task.shuffle.packed_events import BLOB_BYTES, pieces, unpacked, whole

_SIZES = st.one_of(
    st.integers(5, 100),
    st.sampled_from([BLOB_BYTES - 1, BLOB_BYTES, BLOB_BYTES + 1, 2 * BLOB_BYTES, 5 * BLOB_BYTES + 7]),
)


def _event(number: int, size: int) -> bytes:
    return size.to_bytes(4, "little") + bytes([number % 251]) * (size - 4)


@given(st.lists(st.lists(_SIZES, min_size=1, max_size=5), max_size=4))
def test_blobs_cut_into_pieces_give_the_same_events(blobs: list[list[int]]) -> None:
    events = [[_event(number, size) for number, size in enumerate(sizes)] for sizes in blobs]
    records = [(number, piece) for number, blob in enumerate(events) for piece in pieces(b"".join(blob))]
    assert all(len(piece) <= 2 * BLOB_BYTES for _, piece in records)
    found: list[bytes] = []
    for _, content in whole(records):
        assert isinstance(content, bytes)
        found += unpacked(content)
    assert found == [event for blob in events for event in blob]


def test_an_event_that_broke_off_is_left_out() -> None:
    large = _event(1, 5 * BLOB_BYTES)
    records: list[tuple[int, bytes | str]] = [(0, piece) for piece in list(pieces(large))[:3]]
    assert list(
        whole([*records, (0, "the error"), (1, large[:100].replace(large[:4], (100).to_bytes(4, "little")))])
    ) == [
        (0, "the error"),
        (1, (100).to_bytes(4, "little") + large[4:100]),
    ]
