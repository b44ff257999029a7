"""Connecting: when a server is given up, and which options of the URI take precedence."""

from __future__ import annotations

import pytest
from pymongo import ReadPreference

from changefeed.errors import ConfigurationError
from source.connection import connect


@pytest.mark.parametrize("said", ["", "&socketTimeoutMS=5000", "&sockettimeoutms=5000", "&timeoutMS=3000"])
def test_a_server_is_given_up_when_it_is_gone_and_not_while_it_works(said: str) -> None:
    with connect(f"mongodb://127.0.0.1:1/?connect=false{said}") as client:
        assert client.options.server_selection_timeout == 5.0
        assert client.options.pool_options.connect_timeout == 5.0
        assert (client.options.pool_options.socket_timeout, client.options.timeout) == (None, None)
        assert client.options.pool_options.appname == "sluice"


def test_options_of_the_uri_take_precedence_in_any_case() -> None:
    with connect("mongodb://127.0.0.1:1/?serverselectiontimeoutms=700&appName=mine") as client:
        assert client.options.server_selection_timeout == 0.7
        assert client.options.pool_options.appname == "mine"


@pytest.mark.parametrize("uri", ["http://somewhere", "mongodb://", "mongodb://host:port/"])
def test_an_invalid_uri_is_a_configuration_error(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="source: "):
        connect(uri)


def test_a_stored_changefeed_with_another_read_preference_is_refused() -> None:
    with pytest.raises(
        ConfigurationError, match="source: its connection string: found readPreference=secondary; Sluice"
    ):
        connect("mongodb://127.0.0.1:1/?connect=false&readPreference=secondary")
    with connect("mongodb://127.0.0.1:1/?connect=false&readPreference=primary") as client:
        assert client.read_preference == ReadPreference.PRIMARY
