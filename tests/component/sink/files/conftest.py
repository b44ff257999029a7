"""Where the files are: most tests run in a directory and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of an empty place; options are added with &."""
    if request.param == "directory":
        return f"file://{tmp_path}/orders?commit_interval=60s"
    uri: str = request.getfixturevalue("bucket")
    return uri
