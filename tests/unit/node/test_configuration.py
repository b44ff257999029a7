"""A node's configuration, from a file and from flags."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from changefeed.errors import ConfigurationError
from changefeed.records.node import Role
from credentials.secret_files import SecretFiles
from node.configuration import NodeConfiguration, loopback


def test_flags_replace_what_the_file_says_and_leave_the_rest() -> None:
    file = "name: n1\netcd: {endpoints: ['a:1', 'b:2']}\nspark: {master: 'local[2]', conf: {spark.driver.memory: 2g}}\n"
    found = NodeConfiguration.of(file, {"name": "n2", "spark": {"conf": {"spark.ui.enabled": "true"}}, "grace": 5})
    assert (found.name, found.etcd.endpoints, found.spark.master) == ("n2", ("a:1", "b:2"), "local[2]")
    assert found.spark.conf == {"spark.driver.memory": "2g", "spark.ui.enabled": "true"}
    assert (found.grace, found.roles) == (timedelta(seconds=5), (Role.OWNER, Role.PROCESSOR))


def test_all_mistakes_are_told_with_their_paths() -> None:
    with pytest.raises(ConfigurationError) as refused:
        NodeConfiguration.of("roles: owner\netcd: {endpoint: a}\nhttp_address: ':1'\nsession_ttl: ten\n", {})
    assert sorted(problem.partition(":")[0] for problem in refused.value.problems) == [
        "etcd.endpoint",
        "http_address",
        "roles",
        "session_ttl",
    ]


def test_changefeeds_read_files_of_named_directories_and_none_of_the_nodes_own(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ci:operator:0123456789abcdef\n")
    assert NodeConfiguration.of(None, {}).secret_files == SecretFiles(directories=("/run/secrets",))
    found = NodeConfiguration.of(f"secret_directories: [{tmp_path}]\nadmin: {{token_file: {tokens}}}", {})
    assert found.secret_files == SecretFiles(directories=(str(tmp_path),), own=(str(tokens),))
    for wrong in ("relative/path", "/", ""):
        with pytest.raises(ConfigurationError, match=r"^secret_directories: found .*; write the absolute path"):
            NodeConfiguration.of(None, {"secret_directories": [wrong]})


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("node.example:1", False),
        ("localhost.example:1", False),
    ],
)
def test_only_this_machine_reaches_loopback(address: str, local: bool) -> None:
    assert loopback(address) is local


def test_nobody_listens_to_strangers_unasked(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ci:operator:0123456789abcdef\n")
    with pytest.raises(ConfigurationError, match=r"^admin: found address 0.0.0.0:1, which other machines can reach"):
        NodeConfiguration.of(None, {"admin": {"address": "0.0.0.0:1"}})
    for allowed in ({"token_file": tokens}, {"allow_unauthenticated": True}):
        found = NodeConfiguration.of(None, {"admin": {"address": "0.0.0.0:1", **allowed}})
        assert found.admin.address == "0.0.0.0:1"


def test_strangers_see_the_console_only_with_a_token_over_tls(tmp_path: Path) -> None:
    names = ("tokens", "cert", "key")
    files = {name: tmp_path / name for name in names}
    for path in files.values():
        path.write_text("ci:operator:0123456789abcdef\n")
    tls = {"cert": files["cert"], "key": files["key"]}
    for admin in ({}, {"allow_unauthenticated": True}, {"token_file": files["tokens"]}, tls):
        with pytest.raises(ConfigurationError, match=r"console_address 0\.0\.0\.0:2, which other machines can reach"):
            NodeConfiguration.of(None, {"console_address": "0.0.0.0:2", "admin": admin})
        assert NodeConfiguration.of(None, {"console_address": "127.0.0.1:2", "admin": admin})
    everything = {**tls, "token_file": files["tokens"]}
    assert NodeConfiguration.of(None, {"console_address": "0.0.0.0:2", "admin": everything})
    assert NodeConfiguration.of(None, {}).console_address is None


@pytest.mark.parametrize(
    "master",
    [
        "local",
        "local[*]",
        "local[4]",
        "spark://m:7077",
        "spark://m1:7077,m2:7077",
        "k8s://https://10.0.0.1:6443",
        "yarn",
    ],
)
def test_spark_s_masters_are_taken(master: str) -> None:
    assert NodeConfiguration.parse({"spark": {"master": master}}).spark.master == master


@pytest.mark.parametrize(
    "master", ["", "spark", "sparc://m:7077", "spark://m", "spark://m:x", "local-cluster[1,1,512]", 7]
)
def test_another_master_is_a_mistake(master: object) -> None:
    with pytest.raises(ConfigurationError, match=r"spark\.master: found .*; write local\[N\], spark://host:port, k8s"):
        NodeConfiguration.parse({"spark": {"master": master}})
