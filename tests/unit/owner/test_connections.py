"""The permit of an owner's term."""

from __future__ import annotations

import pytest

from changefeed.errors import FencedError
from owner.connections import TermPermit


def test_an_owner_may_write_as_long_as_its_term_lasts() -> None:
    assert TermPermit(lambda: 2.5)() == 2.5


@pytest.mark.parametrize("left", [0.0, -1.0])
def test_after_its_term_it_is_told_so_by_an_error_since_not_every_sink_counts_seconds(left: float) -> None:
    with pytest.raises(FencedError):
        TermPermit(lambda: left)()
