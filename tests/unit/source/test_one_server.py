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


def test_it_stays_with_its_server_whatever_order_they_come_in() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B, A]), choose([B, A])] == [[A], [A], [A]]


def test_it_takes_another_when_its_server_is_gone_and_stays_with_that_one() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B]), choose([A, B])] == [[A], [B], [B]]


def test_it_chooses_none_of_none() -> None:
    assert OneServer()([]) == []


def test_it_begins_with_the_nearest() -> None:
    assert OneServer()([P, FAR, NEAR]) == [NEAR]


def test_writes_in_between_do_not_lead_it_away() -> None:
    choose = OneServer()
    assert [choose([FAR]), choose([P]), choose([NEAR, FAR])] == [[FAR], [P], [FAR]]


def test_a_primary_is_stayed_with_where_there_is_a_choice() -> None:
    choose = OneServer()
    assert choose([P, member("slow", 90)]) == [P]
    assert choose([member("slow", 0.1), P]) == [P]
