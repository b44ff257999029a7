"""A file system that is full stops a changefeed, and costs nothing: when it has space again, what is read is complete."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.errors import SinkUnavailable
from sink.messages.files.feed_log import FileLeftovers
from tests.component.sink.files.feed import IDENTITY, Feed
from tests.component.sink.vocabulary import A, insert, moment

_ROWS = 2_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB. Mounting it needs a right that not every machine gives."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True, timeout=30)
    yield place
    subprocess.run(["umount", str(place)], check=True, timeout=30)


@pytest.mark.soak
def test_a_full_disk_loses_nothing(small: Path) -> None:
    feed = Feed(f"file://{small}/orders?compression=none")
    feed.window(100, 110, [insert(A, 101, 0)])
    feed.marks.mark(moment(110))
    filler = small / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(bytes(2 << 20))
    changes = [insert(A, 111, key) for key in range(_ROWS)]
    with pytest.raises(SinkUnavailable, match="No space left"):
        feed.window(110, 120, changes)
    with pytest.raises(SinkUnavailable, match="No space left"):
        feed.marks.mark(moment(111))
    assert feed.read() == ["schema shop.a", "i0@101"]
    assert not list(small.rglob("*.part"))
    filler.unlink()
    feed.window(110, 120, changes)
    feed.marks.mark(moment(120))
    assert feed.read() == ["schema shop.a", "i0@101", *(f"i{key}@111" for key in range(_ROWS))]
    FileLeftovers(IDENTITY, feed.store).sweep(lambda _: True)
    assert len(feed.read()) == _ROWS + 2
