"""What references stand for, where it may come from, and that nothing of it is shown. A file that was replaced has another stamp."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from changefeed.config.uri import ConnectionUri
from changefeed.errors import ConfigurationError
from credentials.redaction import redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import FreshFiles, expanded, expansion, stamp


@pytest.fixture
def files(tmp_path: Path) -> SecretFiles:
    (tmp_path / "secrets").mkdir()
    return SecretFiles(directories=(str(tmp_path / "secrets"),), own=(str(tmp_path / "secrets" / "own.key"),))


def _put(files: SecretFiles, name: str, content: str | bytes) -> str:
    path = Path(files.directories[0]) / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def _refusal(uri: str, files: SecretFiles) -> str:
    with pytest.raises(ConfigurationError) as caught:
        expanded(ConnectionUri.parse(uri), files)
    return str(caught.value)


def test_a_file_of_an_allowed_directory_is_read(files: SecretFiles) -> None:
    path = _put(files, "password", "p@ss/word:?\n")

    assert (
        expanded(ConnectionUri.parse(f"mongodb://u:${{file:{path}}}@h"), files) == "mongodb://u:p%40ss%2Fword%3A%3F@h"
    )
    assert redacted("found p@ss/word:?, p%40ss%2Fword%3A%3F and Bad database name word:?") == (
        "found ***, *** and Bad database name ***:?"
    )


def test_a_mounted_secret_is_a_link_within_its_directory(files: SecretFiles) -> None:
    home = Path(files.directories[0])
    _put(files, "..data/source", "u:linked-password@h")
    (home / "source").symlink_to("..data/source")

    assert expanded(ConnectionUri.parse(f"mongodb://${{file:{home}/source}}"), files) == "mongodb://u:linked-password@h"


@pytest.mark.parametrize("way", ["elsewhere", "missing", "secrets/../elsewhere", "secrets/link", "secrets-of-others/a"])
def test_a_file_elsewhere_is_refused_whether_or_not_it_exists(files: SecretFiles, tmp_path: Path, way: str) -> None:
    (tmp_path / "elsewhere").write_text("root-of-all-evil")
    (tmp_path / "secrets" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "secrets-of-others").mkdir()
    (tmp_path / "secrets-of-others" / "a").write_text("x")

    refusal = _refusal(f"mongodb://${{file:{tmp_path}/{way}}}", files)

    assert f"the file {tmp_path}/{way} is outside the directories from which this node reads secrets" in refusal
    assert "secret_directories" in refusal


def test_secrets_of_the_node_are_refused(files: SecretFiles) -> None:
    key = _put(files, "own.key", "of-the-node")
    account = _put(files, "kubernetes.io/token", "of-the-account")

    for path in (key, account):
        assert "is a secret of the node itself" in _refusal(f"mongodb://h/?appName=${{file:{path}}}", files)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("root:x:0:0\ndaemon:x:1:1", "expected one line of text"),
        (b"\x00\x01key", "expected one line of text"),
        (b"\xff\xfe", "is no text"),
        ("", "expected one line of text"),
        ("a" * 70_000, "expected one line of text"),
    ],
)
def test_a_file_that_is_no_line_of_text_is_refused(files: SecretFiles, content: str | bytes, told: str) -> None:
    path = _put(files, "strange", content)

    refusal = _refusal(f"mongodb://${{file:{path}}}", files)

    assert told in refusal
    assert "daemon" not in refusal


def test_a_missing_file_and_a_directory_are_named(files: SecretFiles) -> None:
    home = files.directories[0]
    (Path(home) / "folder").mkdir()

    for name in ("missing", "folder"):
        assert f"the file {home}/{name} cannot be read on this node" in _refusal(
            f"mongodb://${{file:{home}/{name}}}", files
        )


def test_what_gives_no_connection_string_is_not_repeated(files: SecretFiles) -> None:
    path = _put(files, "uri", "sluice:PASSW0RD/unescaped@db1.example")

    refusal = _refusal(f"mongodb://${{file:{path}}}", files)

    assert "percent-encode" in refusal
    assert "PASSW0RD" not in refusal
    assert "PASSW0RD" not in redacted('Bad database name "unescaped@db1", PASSW0RD')


@pytest.mark.parametrize(
    ("uri", "hidden"),
    [
        ("mongodb://u:literal-password@h", "literal-password"),
        ("mongodb://${env:WHOLE}", "whole-password"),
        ("mongodb://${env:WHOLE}", "secret-host.example:27017"),
        ("mongodb://${env:WHOLE}", "('secret-host.example', 27017)"),
        ("mongodb+srv://${env:WHOLE}", "_mongodb._tcp.secret-host.example"),
        ("mongodb://${env:ALONE}", "only-a-password"),
        ("mongodb+srv://${env:ALONE}", "only-a-password"),
        ("mongodb://a-token-as-user@h", "a-token-as-user"),
        ("mongodb://h/?replicaSet=${env:ALONE}", "only-a-password"),
        ("mongodb://h/?tls=true&tlsCertificateKeyFilePassword=of-the-key", "of-the-key"),
    ],
)
def test_what_may_be_secret_is_hidden_from_then_on(uri: str, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHOLE", "u:whole-password@secret-host.example/?replicaSet=rs0")
    monkeypatch.setenv("ALONE", "only-a-password")

    expanded(ConnectionUri.parse(uri))

    assert redacted(f"it said {hidden}: no") in ("it said ***: no", "it said _mongodb.***: no")


@pytest.mark.parametrize("shown", ["the source", "written-host:27017", "reader", "127.0.0.1", "replicaSet"])
def test_hosts_as_written_and_names_of_users_are_shown(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READER", "reader")
    monkeypatch.setenv("NAMED", "reader:password-of-reader@source:27018")
    expanded(ConnectionUri.parse("mongodb://${env:NAMED}"))
    monkeypatch.setenv("LOCAL", "127.0.0.1:27017/?replicaSet=rs0")

    expanded(ConnectionUri.parse("mongodb://${env:READER}:password-of-reader@written-host"))
    expanded(ConnectionUri.parse("mongodb://${env:LOCAL}"))

    assert redacted(shown) == shown


def test_an_expansion_differs_when_its_files_do(files: SecretFiles) -> None:
    password, ca = _put(files, "password", "first-one"), _put(files, "ca.pem", "A")
    uri = ConnectionUri.parse(f"mongodb://u:${{file:{password}}}@h/?tls=true&tlsCAFile={ca}")
    first = expansion(uri, files)
    assert expansion(uri, files) == first
    assert "first-one" not in repr(first)

    _put(files, "password", "second-one")
    second = expansion(uri, files)
    _put(files, "ca.pem", "BC")

    assert len({first, second, expansion(uri, files)}) == 3


def _written_later(path: Path) -> None:
    """With content of the same size."""
    before = path.stat()
    path.write_text("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def _replaced(path: Path) -> None:
    """As a mounted Secret is: by a file of the same size and time."""
    before = path.stat()
    other = path.with_name("other")
    other.write_text("two")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize(
    "change",
    [_written_later, _replaced, Path.unlink, lambda path: path.write_text("longer")],
    ids=["written", "replaced", "removed", "longer"],
)
def test_a_file_that_changed_has_another_stamp(change: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("one")
    before = stamp([path, tmp_path / "missing"])
    assert stamp([path, tmp_path / "missing"]) == before
    change(path)
    assert stamp([path, tmp_path / "missing"]) != before


def test_a_replaced_file_that_cannot_be_read_is_told_once_and_tried_at_each_call(tmp_path: Path) -> None:
    """What hinders reading may pass without a trace in the file, such as a process that has too many open files."""
    path, hindered = tmp_path / "tls.crt", [OSError("hindered")]
    path.write_text("first")

    def read() -> str:
        if hindered and path.read_text() != "first":
            raise hindered[0]
        return path.read_text()

    file = FreshFiles("admin.cert", [path], read)
    path.write_text("second one")
    with capture_logs() as logs:
        assert [file.value(), file.value()] == ["first", "first"]
        hindered.clear()
        assert [file.value(), file.value()] == ["second one", "second one"]
    assert [each["event"] for each in logs] == ["files_not_read_again", "files_read_again"]
