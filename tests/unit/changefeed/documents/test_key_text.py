from __future__ import annotations

import bson

from changefeed.documents.key_text import key_text


def test_a_short_key_is_shown_whole() -> None:
    assert key_text(bson.encode({"_id": 7, "region": "eu"})) == "{'_id': 7, 'region': 'eu'}"


def test_a_long_key_is_cut_and_its_size_is_shown() -> None:
    text = key_text(bson.encode({"_id": "k" * 9_000}))
    assert text.startswith("{'_id': 'kkk")
    assert text.endswith("kkk... (9015 bytes)")
    assert len(text) < 250


def test_text_that_is_not_utf_8_is_shown() -> None:
    assert key_text(bson.encode({"_id": "aa"}).replace(b"aa", b"\xff\xff")).startswith("{'_id': ")
