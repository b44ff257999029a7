"""`sluice changefeed ensure`, as the chart's job runs it at each upgrade."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from devstack.mongodb.server import MongoDB
from tests.component.node.server_process import Server
from tests.until import until


class Entry:
    """One entry of the chart's values, in a file."""

    def __init__(self, server: Server, path: Path, source: str, id: str) -> None:
        self.id = id
        self._server = server
        self._path = path
        self._fields: dict[str, Any] = {"id": id, "source": source, "sink": "blackhole://", "start": "now"}
        self.change()

    def change(self, **fields: Any) -> None:
        self._fields |= fields
        self._path.write_text(yaml.safe_dump(self._fields))

    def ensured(self, *flags: str) -> str:
        done = self._server.sluice("changefeed", "ensure", str(self._path), *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *flags: str) -> str:
        done = self._server.sluice("changefeed", "ensure", str(self._path), *flags)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self._server.sluice("changefeed", "query", self.id, "-o", "yaml").stdout)
        return found


@pytest.fixture
def source(own_mongodb: Callable[..., MongoDB]) -> MongoDB:
    return own_mongodb("ensured")


@pytest.fixture
def entry(server: Server, tmp_path: Path, source: MongoDB, database: str) -> Entry:
    made = Entry(server, tmp_path / "entry.yaml", source.uri, database)
    assert made.ensured() == f"changefeed {database} created\n"
    until(lambda: made.shown()["checkpoint"], "the beginning")
    return made


def test_an_upgrade_succeeds_while_the_source_is_down(entry: Entry, source: MongoDB) -> None:
    source.kill()
    assert entry.ensured().endswith(", and as configured\n")


def test_a_changed_entry_is_reported_and_applied_if_that_is_wanted(entry: Entry) -> None:
    entry.change(filter={"tables": ["shop.*"]}, on_divergence="fail")
    assert "it differs in filter.tables, on_divergence, and is not changed" in entry.ensured()
    assert entry.shown()["configuration"]["on_divergence"] == "repair"
    assert entry.ensured("--update") == f"changefeed {entry.id} updated: filter.tables, on_divergence\n"
    until(lambda: entry.shown()["state"] == "normal", "that it runs again")
    assert entry.shown()["configuration"]["on_divergence"] == "fail"
    assert "as configured" in entry.ensured("--update")


def test_a_changefeed_whose_update_is_refused_runs_on(entry: Entry, source: MongoDB) -> None:
    entry.change(capture="change_stream", source=f"{source.uri}&readPreference=secondary")
    assert "readPreference" in entry.refused("--update") or "source" in entry.refused("--update")
    until(lambda: entry.shown()["desired"] == "running" and entry.shown()["obeyed"], "that it runs again")


def test_a_changefeed_that_a_user_paused_stays_paused(entry: Entry, server: Server) -> None:
    assert server.sluice("changefeed", "pause", entry.id).returncode == 0
    entry.change(on_divergence="fail")
    entry.ensured("--update")
    assert (entry.shown()["desired"], entry.shown()["configuration"]["on_divergence"]) == ("paused", "fail")


def test_what_was_removed_after_the_cut_over_does_not_come_back(entry: Entry, server: Server, source: MongoDB) -> None:
    finalized = server.sluice("changefeed", "finalize", entry.id, "--yes")
    assert finalized.returncode == 0, finalized.stderr
    assert "is finished, and as configured" in entry.ensured()
    source.kill()
    assert "is finished, and as configured" in entry.ensured("--update")
    assert server.sluice("changefeed", "remove", entry.id, "--yes").returncode == 0
    assert "was removed at" in entry.ensured()
    assert server.sluice("changefeed", "query", entry.id).returncode == 3
    source.start()
    assert (
        server.sluice(
            "changefeed", "create", "--id", entry.id, "--source", source.uri, "--sink", "blackhole://"
        ).returncode
        == 0
    )
    assert "differs in" in entry.ensured() or "as configured" in entry.ensured()


def test_each_file_is_tried_and_each_failure_told(
    entry: Entry, server: Server, tmp_path: Path, source: MongoDB
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(yaml.safe_dump({"id": "wrong", "source": source.uri}))
    done = server.sluice("changefeed", "ensure", str(wrong), str(tmp_path / "none.yaml"), str(tmp_path / "entry.yaml"))
    assert (done.returncode, done.stdout.strip().endswith("as configured")) == (1, True)
    assert "sink: missing" in done.stderr
    assert "none.yaml: No such file" in done.stderr


def test_what_is_declared_no_longer_is_removed_if_it_carries_the_name(
    server: Server, tmp_path: Path, source: MongoDB, database: str
) -> None:
    name = f"team-{database}".replace("_", "-")
    kept, gone, other, free = (Entry(server, tmp_path / f"{id}.yaml", source.uri, f"{id}.{database}") for id in "abcd")
    for each, managed_by in ((kept, name), (gone, name), (other, "team-b"), (free, None)):
        each.change(managed_by=managed_by)
        each.ensured()
    assert "without managed_by" in free.refused("--prune", name)
    assert gone.shown()["id"] == gone.id
    assert kept.ensured("--prune", name).splitlines() == [
        f"changefeed {kept.id} is normal, and as configured",
        f"changefeed {gone.id} removed: it has managed_by: {name}, and no file",
    ]
    assert kept.ensured("--prune", name) == f"changefeed {kept.id} is normal, and as configured\n"
    ids = server.sluice("changefeed", "list", "-o", "name").stdout.split()
    assert {kept.id, other.id, free.id} <= set(ids)
    assert gone.id not in ids
    kept.change(sink="nothing")
    assert "sink: found" in kept.refused("--prune", "team-b"), "a set with a mistake removes nothing"
    assert other.shown()["id"] == other.id
