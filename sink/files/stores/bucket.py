"""`ObjectBucket`: a store in a bucket of S3, under a prefix.

`create` is a put with `If-None-Match: *`. If its answer is lost, the client sends it again and finds the name taken, by itself. So each
call puts a token of its own beside the content, and looks whose token is there:

    put, token 5     done, its answer is lost          put again     412          whose? token 5     True: this call made it
    put, token 6     412                               whose? token 5             False: another one did

A file of rows goes up in parts, so that memory holds one part however large it is. Nobody sees it before it is complete. A small one is
one put.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from changefeed.config.sinks.store_place import BucketPlace
from changefeed.errors import SinkRefused, SinkUnavailable, SluiceError
from sink.files.stores.bucket_errors import BROKEN_CONTENT, is_absent, is_conflict, is_taken, translated
from sink.files.stores.upload import TOKEN, Upload

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

_CONFLICTS = 5
_READS = 3


class ObjectBucket:
    if_empty = "was it emptied, or does a rule remove its objects?"

    def __init__(self, place: BucketPlace, client: Callable[[], S3Client]) -> None:
        """`client` is called for each operation: its credentials may have changed."""
        self._place = place
        self._client = client

    def __str__(self) -> str:
        return str(self._place)

    def check(self) -> None:
        name = f"probe-{secrets.token_hex(8)}"
        if not self.create(name, b"1"):
            raise SinkRefused(f"{self}: {name} was refused as if it existed; use another store")
        refused: list[str] = []
        for step in (self._check_condition, self._check_reading, self._check_upload, self.remove):
            try:
                step(name)
            except SinkRefused as error:
                refused.append(str(error))
        if refused:
            with suppress(SluiceError):
                self.remove(name)
            raise SinkRefused("; ".join(dict.fromkeys(refused)))

    def empty(self) -> bool:
        with translated(f"{self}: listing"):
            found = self._client().list_objects_v2(Bucket=self._place.bucket, Prefix=self._below(""), MaxKeys=1)
            return not found["KeyCount"]

    def create(self, name: str, content: bytes) -> bool:
        token = secrets.token_hex(8)
        with translated(f"{self}: writing {name}"):
            for _ in range(_CONFLICTS):
                try:
                    self._client().put_object(
                        Bucket=self._place.bucket,
                        Key=self._key(name),
                        Body=content,
                        IfNoneMatch="*",
                        Metadata={TOKEN: token},
                    )
                except ClientError as error:
                    if is_taken(error):
                        return self._token_of(name) == token
                    if not is_conflict(error):
                        raise
                else:
                    return True
        raise SinkUnavailable(f"{self}: writing {name}: {_CONFLICTS} times another put of it was under way")

    def new(self, name: str) -> Upload:
        return Upload(self._client, self._place.bucket, self._key(name), f"{self}: writing {name}")

    def read(self, name: str) -> bytes | None:
        """A connection that breaks within a content is no failed request, which the client would repeat."""
        for left in reversed(range(_READS)):
            with translated(f"{self}: reading {name}"):
                try:
                    content = self._client().get_object(Bucket=self._place.bucket, Key=self._key(name))["Body"]
                except ClientError as error:
                    if not is_absent(error):
                        raise
                    return None
                try:
                    return content.read()
                except BROKEN_CONTENT:
                    if not left:
                        raise
        raise AssertionError

    def names(self, folder: str, after: str = "") -> list[str]:
        prefix = self._below(folder)
        with translated(f"{self}: listing {folder}"):
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._place.bucket, Prefix=prefix, Delimiter="/", StartAfter=f"{prefix}{after}")
            )
            found: set[str] = set()
            for page in pages:
                found.update(each["Key"] for each in page.get("Contents", ()))
                found.update(each["Prefix"] for each in page.get("CommonPrefixes", ()))
        names = (key.removeprefix(prefix).rstrip("/") for key in found)
        return sorted(name for name in names if name > after)

    def remove(self, name: str) -> None:
        with translated(f"{self}: removing {name}"):
            self._client().delete_object(Bucket=self._place.bucket, Key=self._key(name))

    def tidy(self, folder: str) -> None:
        for key, upload in self._uploads(folder):
            with translated(f"{self}: removing an upload below {folder}"):
                try:
                    self._client().abort_multipart_upload(Bucket=self._place.bucket, Key=key, UploadId=upload)
                except ClientError as error:
                    if not is_absent(error):
                        raise

    def _key(self, name: str) -> str:
        return f"{self._place.prefix}/{name}" if self._place.prefix else name

    def _below(self, folder: str) -> str:
        return "".join(f"{part}/" for part in (self._place.prefix, folder) if part)

    def _token_of(self, name: str) -> str | None:
        try:
            return self._client().head_object(Bucket=self._place.bucket, Key=self._key(name))["Metadata"].get(TOKEN)
        except ClientError as error:
            if not is_absent(error):
                raise
            return None

    def _uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        with translated(f"{self}: listing the uploads below {folder}"):
            pages = (
                self._client()
                .get_paginator("list_multipart_uploads")
                .paginate(Bucket=self._place.bucket, Prefix=self._below(folder))
            )
            found = [(each["Key"], each["UploadId"]) for page in pages for each in page.get("Uploads", ())]
        return iter(found)

    def _check_condition(self, name: str) -> None:
        if self.create(name, b"2"):
            raise SinkRefused(
                f"{self}: an object was written twice under one name: the store ignores If-None-Match, with which Sluice makes sure that one of "
                f"two writers wins; use another store, or a newer version of it"
            )

    def _check_reading(self, name: str) -> None:
        if self.read(name) != b"1" or name not in self.names(""):
            raise SinkRefused(
                f"{self}: {name} was written, and is not read or listed; use a store that shows at once what was written"
            )

    def _check_upload(self, name: str) -> None:
        self.new(f"{name}-data/0").begin()
        self.tidy(f"{name}-data")
