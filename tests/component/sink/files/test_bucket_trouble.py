"""What a bucket's server refuses or fails to do is said with a remedy, and a lost answer changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from changefeed.config.sinks.file_options import BucketPlace, FileSinkOptions
from changefeed.errors import ConfigurationError, SinkRefused, SinkUnavailable, SluiceError
from devstack.ports import free_port
from devstack.s3.faulty_proxy import Fault, FaultyProxy, Request
from sink.messages.files.bucket import PART_BYTES, ObjectBucket
from sink.messages.files.bucket_client import bucket_client
from sink.messages.files.directory import open_store
from sink.messages.files.store import RETRIES

_LOST = (Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE_REQUEST, Fault.BROKEN, Fault.BUSY)


@pytest.fixture
def store(bucket: str) -> ObjectBucket:
    return _opened(bucket)


def _opened(uri: str) -> ObjectBucket:
    store = open_store(FileSinkOptions.parse(uri).place)
    assert isinstance(store, ObjectBucket)
    return store


def _at(number: int, fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda request: fault if request.number == number else None


def _always(fault: Fault) -> Callable[[Request], Fault | None]:
    return lambda _: fault


@pytest.mark.parametrize("fault", _LOST)
def test_a_name_whose_put_was_disturbed_was_won_by_it(s3: FaultyProxy, store: ObjectBucket, fault: Fault) -> None:
    s3.watch(_at(0, fault))
    assert store.create("log/1/0.json", b"one")
    s3.watch(_at(0, fault))
    assert not store.create("log/1/0.json", b"one")
    assert store.read("log/1/0.json") == b"one"


def test_a_put_without_an_answer_may_have_been_done(s3: FaultyProxy, store: ObjectBucket) -> None:
    s3.watch(_always(Fault.LOST_ANSWER))
    with pytest.raises(SinkUnavailable, match="log/1/0"):
        store.create("log/1/0.json", b"one")
    s3.watch()
    assert store.read("log/1/0.json") == b"one"
    assert not store.create("log/1/0.json", b"one")


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("fault", _LOST)
def test_a_disturbed_upload_is_whole(s3: FaultyProxy, store: ObjectBucket, fault: Fault, number: int) -> None:
    content = bytes(range(256)) * (PART_BYTES // 256) + b"rest"
    s3.watch(_at(number, fault))
    file = store.new("data/7/a-0.json")
    file.write(content)
    assert store.names("data/7") == []
    file.end()
    assert store.read("data/7/a-0.json") == content


def test_a_content_that_breaks_off_is_read_again(s3: FaultyProxy, store: ObjectBucket) -> None:
    store.create("log/1/0.json", b"one" * 100)
    s3.watch(_at(0, Fault.CUT_ANSWER))
    assert store.read("log/1/0.json") == b"one" * 100
    s3.watch(_always(Fault.CUT_ANSWER))
    with pytest.raises(SinkUnavailable, match="reading log/1/0"):
        store.read("log/1/0.json")


def test_what_a_killed_task_had_uploaded_is_removed(s3: FaultyProxy, store: ObjectBucket) -> None:
    for name in ("data/7/a-0.json", "data/8/b-0.json"):
        store.new(name).write(bytes(PART_BYTES))
    assert len(list(store._uploads("data"))) == 2
    store.tidy("data/7")
    assert [key for key, _ in store._uploads("data")] == ["some/prefix/data/8/b-0.json"]
    store.tidy("data/7")


def test_a_task_that_gives_up_leaves_no_upload(s3: FaultyProxy, store: ObjectBucket) -> None:
    file = store.new("data/7/a-0.json")
    file.write(bytes(PART_BYTES))
    file.close()
    assert list(store._uploads("data")) == []


@pytest.mark.parametrize(
    ("fault", "kind", "remedy"),
    [
        (Fault.BROKEN, SinkUnavailable, "InternalError"),
        (Fault.BUSY, SinkUnavailable, "SlowDown"),
        (Fault.LOST_REQUEST, SinkUnavailable, "Connection was closed"),
        (Fault.EXPIRED, SinkUnavailable, "have expired: renew them"),
        (Fault.REFUSED, SinkRefused, "grant the rights"),
        (Fault.UNCONDITIONAL, SinkRefused, "ignores If-None-Match"),
    ],
)
def test_a_check_says_what_is_wrong(
    s3: FaultyProxy, store: ObjectBucket, fault: Fault, kind: type[SluiceError], remedy: str
) -> None:
    s3.watch(_always(fault))
    with pytest.raises(kind, match=remedy) as refused:
        store.check()
    assert str(refused.value).startswith("s3://test-")
    s3.watch()
    assert store.empty()


def test_a_check_names_each_right_that_lacks(s3: FaultyProxy, store: ObjectBucket) -> None:
    s3.watch(lambda request: Fault.REFUSED if request.method in {"GET", "POST"} else None)
    with pytest.raises(SinkRefused) as refused:
        store.check()
    assert "reading probe-" in str(refused.value)
    assert "writing probe-" in str(refused.value)


@pytest.mark.parametrize(
    ("change", "kind", "remedy"),
    [
        (lambda uri: uri.replace("@test-", "@none-"), SinkRefused, "create the bucket"),
        (lambda uri: uri.replace("test:test@", ""), SinkRefused, "give this process credentials"),
        (lambda uri: f"{uri}&tlsCAFile=/none.pem", ConfigurationError, "no file on this node"),
        (lambda uri: uri.replace("test:test", "test:${env:NOT_THERE}"), ConfigurationError, "NOT_THERE is not set"),
        (
            lambda uri: f"{uri.partition('endpoint=')[0]}endpoint=http://127.0.0.1:{free_port()}",
            SinkUnavailable,
            "Could not connect",
        ),
        (lambda uri: uri.replace("endpoint=http:", "endpoint=https:"), SinkRefused, "tlsCAFile"),
    ],
    ids=["bucket", "keys", "ca", "reference", "endpoint", "tls"],
)
def test_what_keeps_a_bucket_from_being_used_is_said(
    bucket: str, monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str], kind: type[SluiceError], remedy: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    store = _opened(change(bucket))
    for act in (store.check, store.empty, lambda: store.read("x")):
        with pytest.raises(kind, match=remedy):
            act()


def test_keys_that_were_replaced_are_used(s3: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTATED", "first")
    store = _opened(bucket.replace("test:test", "${env:ROTATED}:x"))
    store.empty()
    monkeypatch.setenv("ROTATED", "second")
    store.empty()
    used = [dict(request.headers)["Authorization"] for request in s3.requests[-2:]]
    assert ["Credential=first" in used[0], "Credential=second" in used[1]] == [True, True]


def test_a_client_is_opened_once(bucket: str) -> None:
    place = FileSinkOptions.parse(bucket).place
    assert isinstance(place, BucketPlace)
    assert bucket_client(place) is bucket_client(place)


def test_requests_that_are_sent_again_are_counted(s3: FaultyProxy, store: ObjectBucket) -> None:
    before = RETRIES.count
    s3.watch(_at(0, Fault.BUSY))
    assert store.create("log/1/0.json", b"one")
    assert RETRIES.count == before + 1
    s3.watch(_always(Fault.LOST_REQUEST))
    with pytest.raises(SinkUnavailable):
        store.create("log/1/1.json", b"one")
    assert RETRIES.count == before + len(s3.requests)
