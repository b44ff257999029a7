from __future__ import annotations

from bson.int64 import Int64
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription

from source.one_server import OneServer


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
