"""A mistake in a command line is reported in words, without a server, with exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

_URIS = ["--source", "mongodb://a", "--sink", "mongodb://b"]

_WRONG: list[tuple[list[str], str]] = [
    (["changefeed", "nonsense"], "No such command 'nonsense'"),
    (["changefeed", "creat"], "Did you mean"),
    (["changefeed", "query"], "Missing argument 'CHANGEFEED'"),
    (["changefeed", "pause"], "Missing argument 'CHANGEFEED'"),
    (["changefeed", "list", "-o", "xml"], "'xml' is not one of table, wide, name, json, yaml"),
    (["changefeed", "list", "--serve", "a:1"], "No such option"),
    (["--server", "a:1", "changefeed", "list"], "No such option: --server. Options stand after the command: sluice"),
    (["changefeed", "--server=a:1", "list"], "No such option: --server. Options stand after the command: sluice"),
    (["changefeed", "create"], "give a configuration file, or --id, --source and --sink"),
    (["changefeed", "create", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    (["changefeed", "create", "a.yaml", "--config", "b.yaml"], "give one configuration file to create"),
    (["changefeed", "create", "--id", "f"], "source: missing; write the URI of the MongoDB to read"),
    (["changefeed", "create", "--id", "f g", *_URIS], "id: found 'f g'; write up to 64 letters, digits"),
    (
        ["changefeed", "create", "--id", "f", "--source", "db1", "--sink", "mongodb://b"],
        "source: found a text without ://; write a URI that begins with mongodb://, mongodb+srv://\n",
    ),
    (
        ["changefeed", "create", "--id", "f", "--source", "mysql://a", "--sink", "mongodb://b"],
        "source: found the scheme 'mysql'; allowed are mongodb://, mongodb+srv://\n",
    ),
    (
        ["changefeed", "create", "--id", "f", "--source", "mongodb://a", "--sink", "mongodb://a"],
        "which is the source's too",
    ),
    (
        ["changefeed", "create", "--id", "f", *_URIS, "--start", "tomorrow"],
        "start: found 'tomorrow'; write initial, now",
    ),
    (["changefeed", "create", "--id", "f", *_URIS, "--start", "initail"], "did you mean 'initial'?"),
    (["changefeed", "create", "--id", "f", *_URIS, "--tables", "shop"], "found 'shop'; write database.collection"),
    (["changefeed", "create", "--id", "f", *_URIS, "--tables", "admin.*"], "are never replicated"),
    (["changefeed", "create", "--id", "f", *_URIS, "--timeout", "0"], "'--timeout'"),
    (["changefeed", "validate", "--id", "f", *_URIS, "--delay", "soon"], "delay: found 'soon'"),
    (["changefeed", "validate", "--id", "f", *_URIS, "--copy-limit", "fast"], "copy_limit: found 'fast'"),
    (["changefeed", "update", "f"], "give one configuration file to update"),
    (["changefeed", "update", "f", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    (["changefeed", "update", "f", "--version", "-1"], "'--version'"),
    (["changefeed", "list", "--cert", "c.pem"], "--cert and --key need TLS; give --ca as well"),
    (["changefeed", "list", "--ca", "nowhere.pem"], "nowhere.pem: cannot be read: No such file or directory"),
    (["changefeed", "list", "--ca", "c.pem", "--cert", "c.pem"], "--cert and --key belong together"),
    (["changefeed", "list", "--token-file", "nowhere"], "nowhere: cannot be read: No such file or directory"),
    (["verify", "f", "--parallelism", "65"], "65 is not at most 64"),
    (["verify", "f", "--parallelism", "many"], "'many' is not a number"),
    (["table", "move", "f", "shop.orders"], "Missing argument 'NODE'"),
    (["ddl", "list"], "Missing argument 'CHANGEFEED'"),
    (["server", "--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    (
        ["server", "--roles", "ower"],
        "sluice: --roles: found 'ower'; allowed are owner, processor (did you mean 'owner'?)",
    ),
    (["server", "--roles", ""], "roles: found []; write owner, processor or both"),
    (["server", "--etcd", "etcd-1"], "sluice: --etcd: found 'etcd-1'; write host:port"),
    (["server", "--etcd", "a:1,b"], "sluice: --etcd: found 'b'; write host:port"),
    (["server", "--etcd", ""], "sluice: --etcd: found none; write at least one host:port, for example etcd-1:2379"),
    (["server", "--admin-address", "8300"], "sluice: --admin-address: found '8300'; write host:port"),
    (
        ["server", "--admin-address", "0.0.0.0:8300"],
        "which other machines can reach, and no authentication; write token_file",
    ),
    (["server", "--admin-cert", "nowhere.pem"], "sluice: --admin-cert: found 'nowhere.pem', which is not a file"),
    (["server", "--token-file", "nowhere"], "sluice: --token-file: found 'nowhere', which is not a file"),
    (["server", "--etcd-user", "root"], "etcd: found user or password_file without the other"),
    (["server", "--spark-conf", "spark.driver.memory"], "--spark-conf: found 'spark.driver.memory'; write key=value"),
    (["server", "--grace", "0"], "grace: found 0.0; write a number of seconds from 1 to 86400"),
    (["server", "--log-format", "xml"], "'xml' is not one of console, json"),
    (["server", "--name", "n 1"], "name: found 'n 1'; write up to 64 letters"),
]


@pytest.mark.parametrize(
    ("arguments", "message"), _WRONG, ids=lambda value: "" if isinstance(value, str) else " ".join(value)
)
def test_a_wrong_invocation_says_what_is_wrong(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.pem").write_text("no certificate")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    answer = CliRunner().invoke(app, arguments, env={"SLUICE_SERVER": "127.0.0.1:1", "TERMINAL_WIDTH": "200"})
    assert answer.exit_code == 2, answer.output
    assert message in answer.stderr
    assert "write a list of" not in answer.stderr, "flags are no YAML"
    assert answer.stdout == ""


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "feed.yaml"
    file.write_text("id: f\nsource: mongodb://a\nsink: mongodb://b\nddl: {ttl: later}\nroutse: []\n")
    answer = CliRunner().invoke(app, ["changefeed", "create", str(file)])
    assert answer.exit_code == 2
    assert "ddl.ttl: found 'later'; allowed are deferred, copied" in answer.stderr
    assert "routse: unknown key; allowed are" in answer.stderr


def test_a_configuration_in_the_home_directory_must_be_one(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("servre: a:1\n")
    answer = CliRunner().invoke(app, ["node", "list"], env={"SLUICE_CONFIG": str(file)})
    assert answer.exit_code == 2
    assert f"{file}: unknown key 'servre'; allowed are server, token_file, ca, cert, key" in answer.stderr
