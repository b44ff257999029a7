"""Tables are copied anew, by the command line alone: one that runs and is written to, and one that is stopped. The others do not notice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.workload import writing
from tests.until import until

_TABLES = ("notes", "orders", "items")


class Recopied:
    def __init__(self, node: Server, id: str, source: Any, target: Any) -> None:
        self.node, self.id, self.source, self.target = node, id, source, target

    def sluice(self, *arguments: str, input: str | None = None) -> str:
        answer = self.node.sluice(*arguments, input=input)
        assert answer.returncode == 0, f"sluice {' '.join(arguments)}: {answer.stderr}{answer.stdout}"
        return answer.stdout

    def shown(self, what: str) -> list[dict[str, Any]]:
        return list(json.loads(self.sluice(what, "list", self.id, "-o", "json")))

    def exchanges(self) -> int:
        return sum((ddl["type"], ddl["state"]) == ("exchange", "done") for ddl in self.shown("ddl"))

    def beside(self) -> list[str]:
        """The unfinished copies at the target."""
        return [name for name in self.target.list_collection_names() if name.startswith("sluice.recopy.")]

    def recopy(self, *names: str) -> str:
        """Or options."""
        named = [name if name.startswith("-") else f"{self.id}.{name}" for name in names]
        return self.sluice("table", "recopy", self.id, *named)

    def until_followed(self, name: str, key: object) -> None:
        self.source[name].insert_one({"_id": key})
        until(lambda: self.target[name].find_one({"_id": key}) is not None, f"{key} in {name}")


@pytest.fixture
def feed(
    node: Server, database: str, source_uri: str, target_uri: str, source_client: Client, target_client: Client
) -> Iterator[Recopied]:
    source, target = source_client[database], target_client[f"{database}_to"]
    for table in _TABLES:
        source[table].insert_many([{"_id": f"row {number}", "n": number} for number in range(2000)])
    source["orders"].create_index("n", unique=True, partialFilterExpression={"n": {"$gt": 0}})
    configuration = {
        "id": database,
        "source": source_uri,
        "sink": target_uri,
        "filter": {"tables": [f"{database}.*"]},
        "routes": [{"from": f"{database}.*", "to": f"{database}_to.*"}],
    }
    found = Recopied(node, database, source, target)
    found.sluice("changefeed", "create", "-", input=yaml.safe_dump(configuration))
    for table in _TABLES:
        found.until_followed(table, "copied")
    yield found
    node.sluice("changefeed", "remove", database, "--yes")


def test_tables_are_copied_anew_while_they_are_written_to_and_while_one_is_stopped(feed: Recopied) -> None:
    feed.target["orders"].delete_many({"n": {"$lt": 100}})
    feed.target["orders"].insert_one({"_id": "nobody's"})
    feed.sluice("table", "stop", feed.id, f"{feed.id}.items")
    feed.source["items"].create_index("m")
    said = feed.recopy("orders", "--dry-run")
    assert said.startswith(f"{feed.id}.orders is copied anew, beside {feed.id}_to.orders at the target, ")
    until(lambda: [ddl["type"] for ddl in feed.shown("ddl")] == ["createIndexes"], "the index, and no copy")
    with writing(feed.source, _TABLES):
        feed.recopy("orders", "items", "--yes")
        feed.until_followed("notes", "meanwhile")
        until(lambda: feed.exchanges() == 2, "the exchanges")
    for table in _TABLES:
        feed.until_followed(table, "after")
    until(lambda: {table["state"] for table in feed.shown("table")} == {"following"}, "all tables to go on")
    assert sorted(feed.target.list_collection_names()) == sorted(_TABLES)
    assert "m_1" in feed.target["items"].index_information()
    steps = [(ddl["type"], ddl["state"]) for ddl in feed.shown("ddl") if ddl["table"] == f"{feed.id}.orders"]
    assert steps == [("leave", "skipped"), ("enter", "skipped"), ("exchange", "done")]
    assert "identical" in feed.sluice("verify", feed.id)


def _measure(feed: Recopied, round: int) -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=round)
    measured = [{"at": begun + timedelta(seconds=n), "of": n % 3, "v": n} for n in range(600)]
    feed.source["measured"].insert_many(measured)


def _in_place(feed: Recopied) -> None:
    """A view and a time series, followed, and then wrong at the target."""
    feed.source.create_collection("measured", timeseries={"timeField": "at", "metaField": "of"})
    feed.source["measured"].create_index([("of", 1)])
    feed.source.create_collection("few", viewOn="orders", pipeline=[{"$match": {"n": {"$lt": 10}}}])
    _measure(feed, 0)
    until(lambda: feed.target["measured"].count_documents({}) == 600, "the measurements")
    until(lambda: feed.target["few"].count_documents({}) == 10, "the view")
    feed.target.drop_collection("few")
    feed.target.create_collection("few", viewOn="items", pipeline=[])
    feed.target["measured"].delete_many({"of": 1})


def _entered(feed: Recopied) -> int:
    return sum((ddl["type"], ddl["state"]) == ("enter", "done") for ddl in feed.shown("ddl"))


@pytest.mark.since("6.0")
def test_a_view_and_a_time_series_are_made_anew_in_place(feed: Recopied) -> None:
    _in_place(feed)
    said = feed.recopy("few", "measured", "--dry-run")
    assert said == (
        f"{feed.id}.few is a view; {feed.id}_to.few at the target is replaced by its present definition\n"
        f"{feed.id}.measured is a time series; {feed.id}_to.measured at the target is dropped, and copied anew in its place\n"
    )
    with writing(feed.source, _TABLES):
        feed.recopy("few", "measured", "--yes")
        _measure(feed, 1)
        until(lambda: _entered(feed) == 2, "both are made anew")
        feed.until_followed("notes", "meanwhile")
        _measure(feed, 2)
        until(lambda: feed.target["measured"].count_documents({}) == 1800, "the measurements of before and after")
    feed.target.drop_collection("few")
    feed.recopy("few", "--yes")
    until(lambda: feed.target["few"].count_documents({}) > 0, "the view that had gone")
    feed.until_followed("orders", "after")
    assert "identical" in feed.sluice("verify", feed.id)


@pytest.mark.soak
@pytest.mark.since("6.0")
def test_a_node_that_is_killed_while_a_view_and_a_time_series_are_made_anew_goes_on(feed: Recopied) -> None:
    _in_place(feed)
    with writing(feed.source, _TABLES):
        for round, seconds in enumerate((0.0, 0.1, 0.3, 1.0, 2.0), 1):
            feed.recopy("few", "measured", "--yes")
            time.sleep(seconds)
            _measure(feed, round)
            feed.node.kill()
            feed.node.start()
            feed.node.until_ready()
            until(lambda: _entered(feed) == 2 * round, "both are made anew")  # noqa: B023 - waited for in this round
            until(
                lambda: feed.target["measured"].count_documents({}) == 600 * (round + 1),  # noqa: B023 - as above
                "the measurements",
            )
    feed.until_followed("orders", "after")
    assert "identical" in feed.sluice("verify", feed.id)


@pytest.mark.soak
def test_a_table_that_is_dropped_while_it_is_copied_anew_is_gone(feed: Recopied) -> None:
    feed.recopy("orders", "--yes")
    feed.source["orders"].drop()
    until(
        lambda: sorted(feed.target.list_collection_names()) == ["items", "notes"],
        "the drop of the table and of its copy",
    )
    feed.until_followed("notes", "after")


@pytest.mark.soak
def test_a_node_that_is_killed_while_a_table_is_copied_anew_goes_on(feed: Recopied) -> None:
    feed.source["orders"].insert_many([{"_id": f"large {number}", "text": "x" * 500} for number in range(100_000)])
    feed.until_followed("orders", "all")
    with writing(feed.source, _TABLES):
        for round, seconds in enumerate((0.3, 1.5, 4.0), 1):
            feed.recopy("orders", "--yes")
            time.sleep(seconds)
            feed.node.kill()
            feed.node.start()
            feed.node.until_ready()
            until(lambda: feed.exchanges() == round, "the exchange")  # noqa: B023 - waited for in this round
            feed.until_followed("orders", f"after {round}")
    for table in _TABLES:
        feed.until_followed(table, "at the end")
    assert sorted(feed.target.list_collection_names()) == sorted(_TABLES)
    assert "identical" in feed.sluice("verify", feed.id)


def _keep_letters(feed: Recopied) -> None:
    """With one letter, of a row of orders."""
    feed.sluice("changefeed", "pause", feed.id)
    present = json.loads(feed.sluice("changefeed", "query", feed.id, "-o", "json"))["configuration"]
    keeping = {**present, "dead_letter": f"{feed.id}_to.rejected"}
    feed.sluice("changefeed", "update", feed.id, "-", "--yes", input=yaml.safe_dump(keeping))
    feed.sluice("changefeed", "resume", feed.id)
    feed.target["orders"].create_index("code", unique=True, partialFilterExpression={"code": {"$gt": 0}})
    feed.source["orders"].insert_many([{"_id": "one", "code": 7}, {"_id": "other", "code": 7}])
    until(lambda: len(_letters(feed)) == 1, "the refused row")


def _letters(feed: Recopied) -> list[Any]:
    return list(json.loads(feed.sluice("table", "rejected", feed.id, "-o", "json")))


@pytest.mark.soak
def test_the_dead_letters_of_a_table_go_away_with_its_old_rows(feed: Recopied) -> None:
    _keep_letters(feed)
    feed.recopy("orders", "--yes")
    with writing(feed.source, _TABLES):
        until(lambda: feed.exchanges() == 1, "the exchange")
    assert _letters(feed) == []
    feed.until_followed("orders", "after")
    assert "identical" in feed.sluice("verify", feed.id)


@pytest.mark.soak
def test_a_table_that_is_taken_out_and_in_again_has_no_letters_of_its_time_before(feed: Recopied) -> None:
    _keep_letters(feed)
    everything, but_orders = f"{feed.id}.*", f"!{feed.id}.orders"
    feed.sluice("changefeed", "update", feed.id, "--tables", everything, "--tables", but_orders, "--yes")
    until(lambda: f"{feed.id}.orders" not in [table["name"] for table in feed.shown("table")], "orders is out")
    feed.target["orders"].drop()
    feed.sluice("changefeed", "update", feed.id, "--tables", everything, "--yes")
    feed.until_followed("orders", "after")
    assert _letters(feed) == []
    assert "identical" in feed.sluice("verify", feed.id)


def test_a_changefeed_that_is_removed_while_a_table_is_copied_anew_leaves_no_unfinished_copy(feed: Recopied) -> None:
    feed.source["orders"].insert_many([{"_id": f"large {number}", "text": "x" * 500} for number in range(50_000)])
    feed.until_followed("orders", "all")
    feed.recopy("orders", "--yes")
    until(feed.beside, "the copy beside")
    feed.sluice("changefeed", "remove", feed.id, "--yes")
    until(lambda: feed.id not in feed.sluice("changefeed", "list"), "the removal")
    assert sorted(feed.target.list_collection_names()) == sorted(_TABLES)
