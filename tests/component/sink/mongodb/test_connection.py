"""What a target says of itself: the kind of its server, and the definitions of its tables."""

from __future__ import annotations

import threading

from bson.datetime_ms import DatetimeMS

from devstack.mongodb.server import Client
from sink.mongodb.connection import connect, is_sharded, listed
from tests.component.sink.mongodb.greeting import Router


def test_a_router_is_known_by_its_greeting() -> None:
    with Router() as router:
        threading.Thread(target=router.serve_forever, daemon=True).start()
        with connect(f"mongodb://127.0.0.1:{router.port}/?directConnection=true") as client:
            assert is_sharded(client)
        router.shutdown()


def test_a_replica_set_is_none(target_uri: str) -> None:
    with connect(target_uri) as client:
        assert not is_sharded(client)


def test_the_definitions_of_many_tables_may_have_dates_beyond_the_year_9999(
    target_uri: str, target_client: Client, database: str
) -> None:
    """Of so many that the server sends them in several batches: each has 16 MB."""
    pipeline = [{"$match": {"at": DatetimeMS(1 << 60)}}]
    for number in range(5):
        target_client[database].command({"create": f"view{number}", "viewOn": "a", "pipeline": pipeline})
    with connect(target_uri) as client:
        found = listed(client, database, "listCollections", filter={"type": "view"}, cursor={"batchSize": 2})
        assert [each["options"]["pipeline"] for each in found] == [pipeline] * 5
