"""Connecting: when a server is given up, and which options of the URI take precedence."""

from __future__ import annotations

import pytest
from bson.int64 import Int64
from pymongo import ReadPreference
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription

from changefeed.errors import ConfigurationError
from source.connection import OneServer, connect


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


def mongos(name: str) -> ServerDescription:
    return ServerDescription(
        (name, 27017), Hello({"ok": 1, "msg": "isdbgrid", "maxWireVersion": 21, "counter": Int64(1)})
    )


def member(name: str, milliseconds: float, *, primary: bool = False) -> ServerDescription:
    hello = {"ok": 1, "setName": "rs", "secondary": not primary, "maxWireVersion": 21}
    return ServerDescription((name, 27017), Hello({**hello, "isWritablePrimary": primary}), milliseconds / 1000)


A, B = mongos("a"), mongos("b")
P, NEAR, FAR = member("p", 1.0, primary=True), member("near", 0.2), member("far", 0.5)


def test_it_keeps_its_server_in_any_order() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B, A]), choose([B, A])] == [[A], [A], [A]]


def test_it_keeps_the_next_server_when_its_first_is_gone() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B]), choose([A, B])] == [[A], [B], [B]]


def test_without_servers_it_chooses_none() -> None:
    assert OneServer()([]) == []


def test_it_begins_with_the_nearest() -> None:
    assert OneServer()([P, FAR, NEAR]) == [NEAR]


def test_writes_do_not_change_the_chosen_server() -> None:
    choose = OneServer()
    assert [choose([FAR]), choose([P]), choose([NEAR, FAR])] == [[FAR], [P], [FAR]]


def test_a_chosen_primary_is_kept_when_there_is_a_choice() -> None:
    choose = OneServer()
    assert choose([P, member("slow", 90)]) == [P]
    assert choose([member("slow", 0.1), P]) == [P]
