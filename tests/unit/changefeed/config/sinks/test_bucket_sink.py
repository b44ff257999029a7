"""What an `s3://` URI says, what is shown of it, and which are refused."""

from __future__ import annotations

import pytest

from changefeed.config.options import Mistake
from changefeed.config.sinks.file_options import BucketPlace, FileFormat, FileSinkOptions
from changefeed.config.uri import ConnectionUri
from sluice_client.bucket_objects import BucketServer

_WHOLE = (
    "s3://${env:KEY}:${file:/run/secrets/s3@x}@orders-archive/shop/2026?endpoint=https://minio.example:9000&region=eu-1"
    "&tlsCAFile=/etc/ca.pem&session_token=${env:TOKEN}&format=bson&commit_interval=5s"
)


def _place(uri: str) -> BucketPlace:
    place = FileSinkOptions.parse(uri).place
    assert isinstance(place, BucketPlace)
    return place


def test_defaults() -> None:
    place = _place("s3://orders-archive")
    assert (place.bucket, place.prefix, place.endpoint) == ("orders-archive", "", "")
    assert BucketServer.of("s3://orders-archive") == BucketServer()
    assert str(place) == "s3://orders-archive"


def test_options() -> None:
    place, options = _place(_WHOLE), FileSinkOptions.parse(_WHOLE)
    assert (place.bucket, place.prefix) == ("orders-archive", "shop/2026")
    assert place.endpoint == "https://minio.example:9000"
    assert (options.format, options.commit_seconds) == (FileFormat.BSON, 5)
    assert not BucketServer.of("s3://abc/x?endpoint=http://h&addressing=virtual").path_style


def test_nothing_of_the_credentials_is_shown() -> None:
    uri = ConnectionUri.parse(_WHOLE)
    shown = str(uri)
    assert shown == (
        "s3://orders-archive/shop/2026?endpoint=https://minio.example:9000&region=eu-1&tlsCAFile=/etc/ca.pem&format=bson&commit_interval=5s"
    )
    assert uri.without_credentials() == ConnectionUri.parse(shown)
    assert "KEY" not in repr(uri) + repr(_place(_WHOLE))
    assert str(ConnectionUri.parse("s3://abc/x")) == "s3://abc/x"


def test_keys_are_what_references_contain() -> None:
    files = {"/run/secrets/s3@x": "se/cr+et=@:"}
    expanded = ConnectionUri.parse(_WHOLE).expand({"KEY": "AK", "TOKEN": "a+b/c=="}, files.__getitem__, lambda _: None)
    assert BucketServer.of(expanded) == BucketServer(
        region="eu-1",
        endpoint="https://minio.example:9000",
        path_style=True,
        ca_file="/etc/ca.pem",
        key="AK",
        secret="se/cr+et=@:",
        session_token="a+b/c==",
    )
    assert BucketServer.of("s3://abc/x?region=a") == BucketServer(region="a")
    ConnectionUri.parse(expanded)


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("s3://", "no name of a bucket"),
        ("s3://a b/x", "no name of a bucket"),
        ("s3://abc:9000/x", "no name of a bucket"),
        ("s3://abc/x//y", "an empty part"),
        ("s3://abc/../y", "an empty part"),
        (f"s3://abc/{'x' * 257}", "256 bytes"),
        ("s3://abc/x?endpoint=minio:9000", "no address of a server"),
        ("s3://abc/x?endpoint=https://minio/path", "no address of a server"),
        ("s3://abc/x?region=EU", "a-z, 0-9"),
        ("s3://abc/x?addressing=paht", "did you mean 'path'"),
        ("s3://abc/x?regoin=eu", "did you mean 'region'"),
        ("s3://abc/x?compression=zip", "allowed are gzip"),
        ("s3://KEY@abc/x", "one of two keys"),
        ("s3://${env:KEY}@abc/x", "one of two keys"),
        ("s3://:SECRET@abc/x", "one of two keys"),
        ("s3://abc/x?session_token=${env:T}", "without keys"),
        ("s3://${env:BUCKET}/x", "elsewhere than"),
        ("s3://K:${env:S}@abc/${env:P}", "elsewhere than"),
        ("s3://abc/x?region=${env:R}", "elsewhere than"),
        ("s3://KEY:hunter2/hunter2@abc/x", "percent-encode"),
    ],
)
def test_mistakes_say_what_to_write_and_show_no_secret(uri: str, remedy: str) -> None:
    with pytest.raises(Mistake, match=remedy) as refused:
        ConnectionUri.parse(uri)
    assert "hunter2" not in str(refused.value)


def test_a_file_has_no_options_of_a_bucket() -> None:
    with pytest.raises(Mistake, match="allowed are"):
        FileSinkOptions.parse("file:///srv?region=eu")
