"""Real nodes join, are drained and stop, and tables move between them, while the source is written to; all through the command line."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from devstack.mongodb.server import Client
from tests.component.node.server_process import Server
from tests.e2e.node.workload import contents, writing
from tests.until import PATIENCE_SECONDS, until

_TABLES = ("customers", "items", "orders", "returns")


def _json(server: Server, *arguments: str) -> Any:
    answer = server.sluice(*arguments, "-o", "json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def _tables_of(server: Server, feed: str) -> dict[str, str]:
    """Each table's node, by the table's name."""
    found = _json(server, "table", "list", feed)
    return {table["name"].partition(".")[2]: table["node"].rpartition("-")[0] for table in found}


@pytest.mark.soak
def test_tables_move_while_the_source_is_written_to_and_nothing_is_lost(
    etcd_endpoint: str,
    tmp_path: Path,
    database: str,
    source_uri: str,
    target_uri: str,
    source_client: Client,
    target_client: Client,
) -> None:
    source, target = source_client[database], target_client[database]

    def started(name: str, *, cluster: str | None = None, roles: str = "owner,processor") -> Server:
        patience = ("--session-ttl", "10", "--grace", "150")  # nodes share two cores with their Spark
        return Server(etcd_endpoint, tmp_path / name, *patience, cluster=cluster, name=name, roles=roles)

    with started("n1") as n1:
        flags = ("--source", source_uri, "--sink", target_uri, "--start", "now", "--tables", f"{database}.*")
        assert n1.sluice("changefeed", "create", "--id", database, *flags).returncode == 0
        with (
            started("n2", cluster=n1.cluster) as n2,
            started("n3", cluster=n1.cluster, roles="owner") as n3,
            writing(source, _TABLES) as stop_writing,
        ):
            until(lambda: sorted(_tables_of(n1, database).values()) == ["n1", "n1", "n2", "n2"], "an even load")
            moved = next(name for name, node in _tables_of(n1, database).items() if node == "n1")
            assert n2.sluice("table", "move", database, f"{database}.{moved}", "n2").returncode == 0
            until(lambda: _tables_of(n2, database)[moved] == "n2", "the move")
            n1.signal(signal.SIGTERM)
            assert n1.wait(PATIENCE_SECONDS) == 0
            assert "node_kept_tables" not in n1.log
            assert set(_tables_of(n3, database).values()) == {"n2"}
            with started("n4", cluster=n1.cluster):
                drained = n3.sluice("node", "drain", "n2", "--yes", "--timeout", str(PATIENCE_SECONDS))
                assert drained.stdout == "node n2 drained\n", drained.stderr
                assert set(_tables_of(n3, database).values()) == {"n4"}
                n2.signal(signal.SIGTERM)
                assert n2.wait(PATIENCE_SECONDS) == 0
                stop_writing()
                finished = n3.sluice("changefeed", "finalize", database, "--yes")
                assert finished.returncode == 0, finished.stderr
        assert contents(target, _TABLES) == contents(source, _TABLES)
