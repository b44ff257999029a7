"""Keys of text indexes are turned back into what a user wrote."""

from __future__ import annotations

from changefeed.documents.index_key import key_as_written


def test_the_fields_of_a_text_index_replace_the_servers_internal_key() -> None:
    kept = {"key": {"a": 1, "_fts": "text", "_ftsx": 1, "b": -1}, "weights": {"title": 10, "body": 1}}
    assert list(key_as_written(kept).items()) == [("a", 1), ("body", "text"), ("title", "text"), ("b", -1)]


def test_other_keys_stay_unchanged() -> None:
    assert key_as_written({"key": {"b": -1, "a": "2dsphere"}}) == {"b": -1, "a": "2dsphere"}
