"""What a reader takes from the URI of a sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice_client.bucket_objects import BucketServer
from sluice_client.feed_store import open_feed


def test_keys_are_what_references_contain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str | None, str | None, str | None, str]] = []
    monkeypatch.setattr(
        BucketServer,
        "opened",
        lambda server, what: opened.append((server.key, server.secret, server.session_token, what)),
    )
    (tmp_path / "s3@x").write_text("se/cr+et=@:\n", encoding="utf-8")
    monkeypatch.setenv("KEY", "AK")
    monkeypatch.setenv("TOKEN", "a+b/c==")
    open_feed(
        f"s3://${{env:KEY}}:${{file:{tmp_path}/s3@x}}@orders-archive/shop?region=eu-1&session_token=${{env:TOKEN}}"
    )
    open_feed("s3://A%2BK:SE+CRET@orders-archive/shop")
    open_feed("s3://orders-archive/shop?region=eu-1")
    assert opened == [
        ("AK", "se/cr+et=@:", "a+b/c==", "s3://orders-archive/shop"),
        ("A+K", "SE CRET", None, "s3://orders-archive/shop"),
        (None, None, None, "s3://orders-archive/shop"),
    ]
