"""A shard is reached as its config servers are, with the name of its own set."""

from __future__ import annotations

from contextlib import closing

import pytest

from changefeed.errors import SourceUnsupported
from source.sharded.cluster_clients import ClusterClients, shard_uri


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("mongodb://cfg1,cfg2", "mongodb://db1:1,db2:2/?replicaSet=sa"),
        ("mongodb://cfg1/?replicaSet=cfg", "mongodb://db1:1,db2:2/?replicaSet=sa"),
        ("mongodb://cfg1?replicaSet=cfg&tls=true", "mongodb://db1:1,db2:2/?replicaSet=sa&tls=true"),
        ("mongodb://u:p%40q@cfg1/?tls=true", "mongodb://u:p%40q@db1:1,db2:2/?replicaSet=sa&tls=true"),
        (
            "mongodb://u:p@cfg1/own?authSource=admin&directConnection=true",
            "mongodb://u:p@db1:1,db2:2/own?replicaSet=sa&authSource=admin",
        ),
        ("mongodb+srv://u:p@cfg.example/", "mongodb://u:p@db1:1,db2:2/?replicaSet=sa&tls=true"),
        ("mongodb+srv://cfg.example/?tls=false", "mongodb://db1:1,db2:2/?replicaSet=sa&tls=false"),
    ],
)
def test_options_and_credentials_are_those_of_the_config_servers(source: str, expected: str) -> None:
    assert shard_uri(source, "sa/db1:1,db2:2") == expected


def test_a_host_without_a_set_is_refused() -> None:
    with pytest.raises(SourceUnsupported, match="'db1:1'"):
        shard_uri("mongodb://cfg1/", "db1:1")


def test_a_shard_is_read_at_its_newest_hosts() -> None:
    """One that was removed may be added again under its name on other hosts. Who still reads the former ones is not disturbed."""
    with closing(ClusterClients("mongodb://127.0.0.1:1/?connect=false")) as clients:
        before = clients.of("sa", "sa/127.0.0.1:2")
        assert clients.of("sa") is before
        now = clients.of("sa", "sa/127.0.0.1:3")
        assert now is not before
        assert clients.of("sa") is now
        assert clients.host("sa") == "sa/127.0.0.1:3"
        assert clients.of("sa", "sa/127.0.0.1:2") is before, "it stays open"
