"""What a `file://` URI says, and which are refused."""

from __future__ import annotations

import pytest

from changefeed.config.options import Mistake
from changefeed.config.sinks.file_options import Compression, DirectoryPlace, FileFormat, FileSinkOptions


def test_defaults() -> None:
    options = FileSinkOptions.parse("file:///srv/orders%20x/")
    assert options == FileSinkOptions(place=DirectoryPlace("/srv/orders x"))
    assert (options.format, options.compression) == (FileFormat.JSON, Compression.GZIP)
    assert (options.commit_seconds, options.file_bytes) == (60, 64 << 20)


def test_options() -> None:
    parsed = FileSinkOptions.parse("file:///srv?format=bson&compression=none&commit_interval=2m&file_size=256KiB")
    assert parsed.format is FileFormat.BSON
    assert parsed.compression is Compression.NONE
    assert (parsed.commit_seconds, parsed.file_bytes) == (120, 256 << 10)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("file://srv", "absolute path"),
        ("file:///", "absolute path"),
        ("file:///srv/../etc", "absolute path"),
        ("file:///srv?formt=bson", "did you mean .format"),
        ("file:///srv?format=avro", "allowed are json, bson"),
        ("file:///srv?compression=lz4", "allowed are gzip, zstd, none"),
        ("file:///srv?commit_interval=0s", "1s to 60m"),
        ("file:///srv?commit_interval=10", "1s to 60m"),
        ("file:///srv?file_size=1KiB", "64KiB to 4096MiB"),
        ("file:///srv?file_size=64MB", "64KiB to 4096MiB"),
    ],
)
def test_mistakes_say_what_to_write(uri: str, remedy: str) -> None:
    with pytest.raises(Mistake, match=remedy):
        FileSinkOptions.parse(uri)
