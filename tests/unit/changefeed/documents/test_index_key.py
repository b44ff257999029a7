"""Keys of text indexes are turned back into what a user wrote."""

from __future__ import annotations

from changefeed.documents.index_key import key_as_written


def test_text_fields_stand_where_the_server_keeps_its_own_note() -> None:
    kept = {"key": {"a": 1, "_fts": "text", "_ftsx": 1, "b": -1}, "weights": {"title": 10, "body": 1}}
    assert list(key_as_written(kept).items()) == [("a", 1), ("body", "text"), ("title", "text"), ("b", -1)]


def test_other_keys_are_what_they_are() -> None:
    assert key_as_written({"key": {"b": -1, "a": "2dsphere"}}) == {"b": -1, "a": "2dsphere"}
