from __future__ import annotations

from bson.int64 import Int64
from pymongo.hello import Hello
from pymongo.server_description import ServerDescription

from source.one_server import OneServer


def mongos(name: str) -> ServerDescription:
    return ServerDescription(
        (name, 27017), Hello({"ok": 1, "msg": "isdbgrid", "maxWireVersion": 21, "counter": Int64(1)})
    )


A, B = mongos("a"), mongos("b")


def test_it_stays_with_its_server_whatever_order_they_come_in() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B, A]), choose([B, A])] == [[A], [A], [A]]


def test_it_takes_another_when_its_server_is_gone_and_stays_with_that_one() -> None:
    choose = OneServer()
    assert [choose([A, B]), choose([B]), choose([A, B])] == [[A], [B], [B]]


def test_it_chooses_none_of_none() -> None:
    assert OneServer()([]) == []
