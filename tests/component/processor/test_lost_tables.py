"""A stopped table whose position leaves the source's oplog is lost alone: the others go on, and it is copied anew."""

from __future__ import annotations

from functools import partial

from changefeed.errors import HistoryLost
from changefeed.lifecycle import State
from changefeed.records.requests import TableVerb
from changefeed.table import TableId
from devstack.mongodb.server import Client, MongoDB
from source.oplog.window import majority_time
from tests.component.processor.conftest import ReplicatingCluster
from tests.forgetful import forget
from tests.independent_compare import differences


def test_a_stopped_table_whose_history_is_gone_is_lost_alone_until_it_is_copied_anew(
    standing: ReplicatingCluster, database: str, forgetful: MongoDB
) -> None:
    with Client(forgetful.uri, w="majority") as client:
        source, there = client[database], standing.target[f"{database}_to"]
        for table in ("orders", "items"):
            source.create_collection(table)
        feed = standing.create("lost", database, source=forgetful.uri)
        standing.until(lambda: standing.began(feed), "the beginning")
        for table in ("orders", "items"):
            source[table].insert_one({"_id": "before"})
            standing.until(partial(there[table].find_one), f"the row of {table}")

        [found] = source.list_collections(filter={"name": "orders"})
        orders = TableId(found["info"]["uuid"].hex())
        standing.ask(feed, orders, TableVerb.STOP)
        standing.until(lambda: standing.stragglers(feed).get(orders), "the stop")
        source["orders"].insert_one({"_id": "while stopped"})
        needed_ts = majority_time(client)

        def follow() -> None:
            newest_ts = majority_time(client)

            def followed() -> bool:
                status = standing.status(feed)
                return status is not None and status.checkpoint is not None and status.checkpoint.ts >= newest_ts

            standing.until(followed, f"the checkpoint passes {newest_ts}")

        forget(client, needed_ts.to_bson(), follow)
        lost = standing.until(lambda: standing.stragglers(feed)[orders].error, "the loss")
        assert lost is not None
        assert lost.code == HistoryLost.code
        assert standing.stragglers(feed)[orders].at.ts <= needed_ts
        assert (
            f"it is at {standing.stragglers(feed)[orders].at}, which is no longer in the source's oplog" in lost.message
        )
        assert "have the table copied anew (`sluice table recopy`)" in lost.message
        source["items"].insert_one({"_id": "while lost"})
        standing.until(lambda: there["items"].find_one({"_id": "while lost"}), "a row of the other table")
        assert standing.stragglers(feed).keys() == {orders}
        assert (standing.state(feed), standing.error(feed)) == (State.NORMAL, "")

        standing.ask(feed, orders, TableVerb.RESUME)
        standing.until(lambda: not standing.etcd.range(standing.layout.requests(feed)).items, "the answer")
        assert standing.stragglers(feed)[orders].stopped
        standing.ask(feed, orders, TableVerb.RECOPY)
        standing.until(lambda: not standing.stragglers(feed), "the end of the copy")
        source["orders"].insert_one({"_id": "after"})
        standing.until(lambda: not differences(client, database, standing.target, f"{database}_to"), "equal sides")
