"""Without keys in its URI a bucket is opened with those that the surroundings of a process give it. What was used, the signatures of its requests say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from changefeed.config.sinks.file_options import FileSinkOptions
from changefeed.errors import SinkRefused
from devstack.s3.faulty_proxy import FaultyProxy, Request
from sink.messages.files import bucket_client
from sink.messages.files.directory import open_store

_KEY = re.compile(r"Credential=([^/]+)/")


@pytest.fixture
def keyless(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URI without keys, on a machine that has none."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(bucket_client, "_clients", {})
    return bucket.replace("test:test@", "")


def _used(s3: FaultyProxy, uri: str) -> tuple[set[str], bool]:
    """The keys by which requests to the bucket were signed, and whether each had a session token."""
    seen: list[Request] = []
    s3.watch(seen.append)
    store = open_store(FileSinkOptions.parse(uri).place)
    store.check()
    of_bucket = [
        dict(request.headers) for request in seen if "/some/prefix" in request.path or "prefix=" in request.path
    ]
    keys = {match[1] for headers in of_bucket if (match := _KEY.search(headers.get("Authorization", "")))}
    return keys, all("X-Amz-Security-Token" in headers for headers in of_bucket)


def test_a_machine_without_keys_is_told_so(keyless: str) -> None:
    with pytest.raises(SinkRefused, match="or give this process credentials"):
        open_store(FileSinkOptions.parse(keyless).place).check()


def test_keys_of_the_environment(s3: FaultyProxy, keyless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OFENVIRONMENT")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert _used(s3, keyless) == ({"OFENVIRONMENT"}, False)


def test_keys_of_a_profile(s3: FaultyProxy, keyless: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id=OFDEFAULT\naws_secret_access_key=x\n"
        "[archive]\naws_access_key_id=OFPROFILE\naws_secret_access_key=x\n"
    )
    assert _used(s3, keyless) == ({"OFDEFAULT"}, False)
    monkeypatch.setenv("AWS_PROFILE", "archive")
    monkeypatch.setattr(bucket_client, "_clients", {})
    assert _used(s3, keyless) == ({"OFPROFILE"}, False)


def test_a_role_of_a_kubernetes_account(
    s3: FaultyProxy, keyless: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an annotation of the account puts into a pod: a token, which is exchanged for keys of the role."""
    (tmp_path / "token").write_text("header.payload.signature")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/sluice")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3.endpoint)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    [key], with_token = _used(s3, keyless)
    assert key.startswith("ASIA")
    assert with_token


def test_a_role_of_a_machine(s3: FaultyProxy, keyless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s3.endpoint)
    [key], with_token = _used(s3, keyless)
    assert key not in {"test", "OFDEFAULT"}
    assert with_token
