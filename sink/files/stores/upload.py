"""`Upload`: an object that is being written, in parts of one size; a small one is one put.

If the answer to its completion is lost, the client asks again, and the upload is not known any more: the token beside the object tells
whether that was this one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from changefeed.errors import SluiceError
from sink.files.stores.bucket_errors import is_absent, translated

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import CompletedPartTypeDef

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
                if not is_absent(error) or not self._is_there():
                    raise

    def _is_there(self) -> bool:
        try:
            found = self._client().head_object(Bucket=self._bucket, Key=self._key)
        except ClientError as error:
            if not is_absent(error):
                raise
            return False
        return found["Metadata"].get(TOKEN) == self._token
