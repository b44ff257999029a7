"""`sluice support-bundle`, `node log-level` and `changefeed export`, against a real server."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.certificates import Certificates
from tests.component.node.server_process import Server, run


@pytest.fixture
def feed(server: Server, database: str, source_uri: str) -> Iterator[str]:
    flags = ("--id", database, "--source", source_uri, "--sink", "blackhole://", "--start", "now")
    created = server.sluice("changefeed", "create", *flags, "--tables", f"{database}.*")
    assert created.returncode == 0, created.stderr
    yield database
    server.sluice("changefeed", "remove", database, "--yes")


def test_a_bundle_has_the_whole_cluster(server: Server, feed: str, tmp_path: Path) -> None:
    to = tmp_path / "case.tar.gz"
    done = server.sluice("support-bundle", "--to", str(to), "--profile", "0.2")
    assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(to) as bundle:
        names = bundle.getnames()
        [nodes] = [bundle.extractfile(name) for name in names if name == "case/nodes.json"]
        assert nodes is not None
        [node] = [each["id"] for each in json.load(nodes)]
    own = {f"case/nodes/{node}/{name}" for name in ("newest.log", "metrics.txt", "profile.txt", "configuration.yaml")}
    assert {*own, f"case/changefeeds/{feed}/history.json", f"case/changefeeds/{feed}/ddl.json"} <= set(names)


def test_nodes_may_share_a_certificate_that_has_the_name_of_all_of_them_only(
    etcd_endpoint: str, tmp_path: Path
) -> None:
    """As in the chart, where the certificate has the Service's name, and each node tells its pod's address."""
    certificates = Certificates(tmp_path)
    cert, key = certificates.issue("node", names="DNS:localhost")
    (tmp_path / "token").write_text(f"me:operator:{'o' * 40}")
    to, token = tmp_path / "case.tar.gz", ("--token-file", str(tmp_path / "token"))
    with Server(etcd_endpoint, tmp_path / "log", "--admin-cert", str(cert), "--admin-key", str(key), *token) as server:
        called = ("--server", server.address.replace("127.0.0.1", "localhost"), "--ca", str(certificates.ca), *token)
        done = run(("support-bundle", "--to", str(to), *called), {})
        assert (done.returncode, done.stderr) == (0, "")
    with tarfile.open(to) as bundle:
        assert [name for name in bundle.getnames() if name.endswith("/newest.log")]


def test_a_bundle_is_made_when_nothing_answers_and_says_so(tmp_path: Path) -> None:
    to = tmp_path / "case.tar.gz"
    done = run(("support-bundle", "--to", str(to)), {"SLUICE_SERVER": "127.0.0.1:1"})
    assert done.returncode == 0
    assert "the list of nodes is missing: the server at 127.0.0.1:1 does not answer" in done.stderr
    with tarfile.open(to) as bundle:
        missing = bundle.extractfile("case/missing.txt")
        assert missing is not None
        assert b"the list of changefeeds is missing" in missing.read()


def test_a_module_is_told_to_log_more_and_then_as_before(server: Server) -> None:
    changed = server.sluice("node", "log-level", "admin=debug", "owner.ddl=warning")
    assert changed.stdout == "*=info\nadmin=debug\nowner.ddl=warning\n"
    server.sluice("changefeed", "list")
    assert server.sluice("node", "log-level", "admin=", "owner.ddl=").stdout == "*=info\n"
    told = [json.loads(line) for line in server.log.splitlines()]
    assert "ListChangefeeds" in [line["method"] for line in told if line["event"] == "call_admitted"]
    server.sluice("changefeed", "list")
    after = [json.loads(line) for line in server.log.splitlines()]
    assert not [line for line in after[len(told) :] if line["event"] == "call_admitted"]
    audits = [line for line in told if line["event"] == "audit" and line["action"] == "log_level"]
    assert audits[0]["after"] == "*=info admin=debug owner.ddl=warning"
    wrong = server.sluice("node", "log-level", "ower=debug")
    assert (wrong.returncode, "found the module 'ower'" in wrong.stderr) == (1, True)


def test_an_export_is_taken_back_by_update_and_create(
    server: Server, feed: str, source_uri: str, tmp_path: Path
) -> None:
    exported = server.sluice("changefeed", "export", feed)
    assert yaml.safe_load(exported.stdout)["source"] == source_uri
    file = tmp_path / "feed.yaml"
    file.write_text(exported.stdout)
    updated = server.sluice("changefeed", "update", feed, "-f", str(file), "--yes")
    assert updated.stdout.splitlines() == ["nothing changes", f"changefeed {feed} unchanged"], updated.stderr
    server.sluice("changefeed", "remove", feed, "--yes")
    assert server.sluice("changefeed", "create", "-f", str(file)).returncode == 0
    assert server.sluice("changefeed", "export", feed).stdout == exported.stdout
