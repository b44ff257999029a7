"""`MotoServer`: an S3 server in memory, as a process of its own. It refuses a conditional put of a name that exists."""

from __future__ import annotations

import sys
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

from devstack.ports import free_port
from devstack.process import ServerProcess

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

PAGE = 100
"""How many names an answer lists at most. Amazon's have a thousand."""
_SECRET = "test"  # noqa: S105 - this server takes any


class MotoServer(ServerProcess):
    def __init__(self, directory: Path, log: Path) -> None:
        super().__init__("s3", directory, log)
        self.port = free_port()

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            "/usr/bin/env",
            f"MOTO_S3_DEFAULT_MAX_KEYS={PAGE}",
            sys.executable,
            "-m",
            "moto.server",
            "-H",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]

    def ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/moto-api/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()


def make_bucket(endpoint: str, name: str) -> None:
    _client(endpoint).create_bucket(Bucket=name)


@cache
def _client(endpoint: str) -> S3Client:
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key=_SECRET
    )
