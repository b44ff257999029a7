"""A host is named in messages when it has answered, and not before. What was opened with credentials is opened again when these change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo.hello import Hello
from pymongo.monitoring import ServerHeartbeatFailedEvent, ServerHeartbeatSucceededEvent

from changefeed.config.uri import ConnectionUri
from changefeed.errors import ConfigurationError
from credentials.clients import ProvenHosts, Renewed
from credentials.redaction import keep_secret, redacted
from credentials.secret_files import SecretFiles
from credentials.secrets import texts_of_host


def test_a_host_that_answered_is_no_secret() -> None:
    keep_secret(*texts_of_host("maybe-a-host", 27017), *texts_of_host("maybe-a-password", 27017))
    hosts = ProvenHosts()
    hello: Hello[dict[str, Any]] = Hello({"ok": 1})

    hosts.succeeded(ServerHeartbeatSucceededEvent(0.1, hello, ("maybe-a-host", 27017)))
    hosts.failed(ServerHeartbeatFailedEvent(0.1, OSError("no"), ("maybe-a-password", 27017)))

    assert redacted("maybe-a-host:27017, maybe-a-password:27017") == "maybe-a-host:27017, ***"
    assert redacted("('maybe-a-host', 27017), ('maybe-a-password', 27017)") == "('maybe-a-host', 27017), ***"


class _Opened:
    def __init__(self, uri: str) -> None:
        if "broken" in uri:
            raise ConfigurationError(["a broken one"])
        self.uri = uri
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def renewed(tmp_path: Path) -> Renewed[_Opened]:
    (tmp_path / "password").write_text("first")
    uri = ConnectionUri.parse(f"mongodb://u:${{file:{tmp_path}/password}}@h")
    return Renewed(uri, _Opened, SecretFiles(directories=(str(tmp_path),)))


def test_it_is_opened_once_and_again_with_a_new_password(renewed: Renewed[_Opened], tmp_path: Path) -> None:
    first = renewed.get()
    assert renewed.get() is first

    (tmp_path / "password").write_text("second")
    second = renewed.get()

    assert (first.uri, second.uri) == ("mongodb://u:first@h", "mongodb://u:second@h")
    assert first.closed == 0, "another thread may use it"
    renewed.close()
    renewed.close()
    assert (first.closed, second.closed) == (1, 1)


@pytest.mark.parametrize("content", [None, "broken"])
def test_what_is_open_stays_while_its_files_are_of_no_use(
    renewed: Renewed[_Opened], tmp_path: Path, content: str | None
) -> None:
    first = renewed.get()
    (tmp_path / "password").unlink()
    if content is not None:
        (tmp_path / "password").write_text(content)

    assert renewed.get() is first

    (tmp_path / "password").write_text("second")
    assert renewed.get() is not first


def test_without_its_files_nothing_is_opened(renewed: Renewed[_Opened], tmp_path: Path) -> None:
    (tmp_path / "password").unlink()

    with pytest.raises(ConfigurationError, match="cannot be read on this node"):
        renewed.get()
