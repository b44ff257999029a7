from __future__ import annotations

import pytest
from pymongo import ReadPreference

from changefeed.errors import ConfigurationError
from sink.mongodb.connection import connect


def test_a_dead_target_is_noticed_in_five_seconds_unless_the_connection_string_says_otherwise() -> None:
    with connect("mongodb://127.0.0.1:1/?connect=false") as client:
        assert client.options.server_selection_timeout == 5
    with connect("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50") as client:
        assert client.options.server_selection_timeout == 0.05


@pytest.mark.parametrize("uri", ["mongodb://user:pa/ss@host/", "mongodb://user:secret@host:port/"])
def test_an_unreadable_connection_string_is_told_without_its_password(uri: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        connect(uri)
    assert "percent-escape" in str(refused.value)
    assert "ss@host" not in str(refused.value)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_a_changefeed_that_was_stored_with_another_read_preference_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match="sink: its connection string: found readPreference=nearest; Sluice"):
        connect("mongodb://127.0.0.1:1/?connect=false&readPreference=nearest")
    with connect("mongodb://127.0.0.1:1/?connect=false&readPreference=primary") as client:
        assert client.read_preference == ReadPreference.PRIMARY
