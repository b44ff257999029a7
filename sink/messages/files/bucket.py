"""`ObjectBucket`: a store in a bucket of S3, under a prefix.

`create` is a put with `If-None-Match: *`. If its answer is lost, the client sends it again and finds the name taken, by itself. So each
call puts a token of its own beside the content, and looks whose token is there:

    put, token 5     done, its answer is lost          put again     412          whose? token 5     True: this call made it
    put, token 6     412                               whose? token 5             False: another one did

A file of rows goes up in parts, so that memory holds one part however large it is. Nobody sees it before it is complete. A small one is
one put.

`Upload` is such a file. If the answer to its completion is lost, the client asks again, and the upload is not known any more: the token beside the object tells
whether that was this one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from changefeed.config.sinks.file_options import BucketPlace
from changefeed.errors import SinkRefused, SinkUnavailable, SluiceError
from sink.messages.files.bucket_client import shown, translated
from sluice_client.bucket_objects import BucketObjects, is_absent, is_conflict, is_taken

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef


_CONFLICTS = 5


class ObjectBucket(BucketObjects):
    if_empty = "was it emptied, or does a rule remove its objects?"

    def __init__(self, place: BucketPlace, client: Callable[[], S3Client]) -> None:
        super().__init__(place.bucket, place.prefix, client, shown)

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
        with self._errors(f"{self}: listing"):
            found = self._client().list_objects_v2(Bucket=self._bucket, Prefix=self._below(""), MaxKeys=1)
            return not found["KeyCount"]

    def create(self, name: str, content: bytes) -> bool:
        token = secrets.token_hex(8)
        with self._errors(f"{self}: writing {name}"):
            for _ in range(_CONFLICTS):
                try:
                    self._client().put_object(
                        Bucket=self._bucket,
                        Key=self._key(name),
                        Body=content,
                        IfNoneMatch="*",
                        Metadata={TOKEN: token},
                    )
                except ClientError as error:
                    if is_taken(error):
                        return _token_of(self._client(), self._bucket, self._key(name)) == token
                    if not is_conflict(error):
                        raise
                else:
                    return True
        raise SinkUnavailable(f"{self}: writing {name}: {_CONFLICTS} times another put of it was under way")

    def new(self, name: str) -> Upload:
        return Upload(self._client, self._bucket, self._key(name), f"{self}: writing {name}")

    def remove(self, name: str) -> None:
        with self._errors(f"{self}: removing {name}"):
            self._client().delete_object(Bucket=self._bucket, Key=self._key(name))

    def below(self, folder: str) -> Iterator[str]:
        with self._errors(f"{self}: listing {folder}"):
            pages = (
                self._client()
                .get_paginator("list_objects_v2")
                .paginate(Bucket=self._bucket, Prefix=self._below(folder))
            )
            for page in pages:
                yield from (each["Key"].removeprefix(self._below("")) for each in page.get("Contents", ()))

    def tidy(self, folder: str, begins: str = "") -> None:
        for key, upload in self._uploads(folder):
            if not key.rpartition("/")[2].startswith(begins):
                continue
            with self._errors(f"{self}: removing an upload below {folder}"):
                try:
                    self._client().abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
                except ClientError as error:
                    if not is_absent(error):
                        raise

    def _uploads(self, folder: str) -> Iterator[tuple[str, str]]:
        with self._errors(f"{self}: listing the uploads below {folder}"):
            pages = (
                self._client()
                .get_paginator("list_multipart_uploads")
                .paginate(Bucket=self._bucket, Prefix=self._below(folder))
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


PART_BYTES = 8 << 20
"""An upload has at most 10,000 parts, and a file of rows at most 4 GiB."""
TOKEN = "sluice-token"  # noqa: S105 - the name of an object's metadata


class Upload:
    def __init__(self, client: Callable[[], S3Client], bucket: str, key: str, what: str) -> None:
        self._client = client
        self._bucket = bucket
        self._key = key
        self._what = what
        self._token = secrets.token_hex(8)
        self._buffer = bytearray()
        self._upload: str | None = None
        self._parts: list[CompletedPartTypeDef] = []

    def write(self, content: bytes) -> None:
        self._buffer += content
        while len(self._buffer) >= PART_BYTES:
            part = bytes(memoryview(self._buffer)[:PART_BYTES])
            del self._buffer[:PART_BYTES]
            self._send(part)

    def end(self) -> None:
        if self._upload is None:
            with translated(self._what):
                self._client().put_object(Bucket=self._bucket, Key=self._key, Body=bytes(self._buffer))
        else:
            if self._buffer:
                self._send(bytes(self._buffer))
            self._complete(self._upload)
        self._buffer.clear()

    def begin(self) -> str:
        with translated(self._what):
            begun = self._client().create_multipart_upload(
                Bucket=self._bucket, Key=self._key, Metadata={TOKEN: self._token}
            )
        self._upload = begun["UploadId"]
        return self._upload

    def close(self) -> None:
        self._buffer.clear()
        upload, self._upload = self._upload, None
        if upload is not None:
            with suppress(SluiceError), translated(self._what):
                self._client().abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=upload)

    def _send(self, part: bytes) -> None:
        upload = self._upload or self.begin()
        number = len(self._parts) + 1
        with translated(self._what):
            stored = self._client().upload_part(
                Bucket=self._bucket, Key=self._key, UploadId=upload, PartNumber=number, Body=part
            )
        self._parts.append({"ETag": stored["ETag"], "PartNumber": number})

    def _complete(self, upload: str) -> None:
        with translated(self._what):
            try:
                self._client().complete_multipart_upload(
                    Bucket=self._bucket, Key=self._key, UploadId=upload, MultipartUpload={"Parts": self._parts}
                )
            except ClientError as error:
                if not is_absent(error) or _token_of(self._client(), self._bucket, self._key) != self._token:
                    raise


def _token_of(client: S3Client, bucket: str, key: str) -> str | None:
    """Who has put the object there."""
    try:
        return client.head_object(Bucket=bucket, Key=key)["Metadata"].get(TOKEN)
    except ClientError as error:
        if not is_absent(error):
            raise
        return None
