"""`Gateway`: versitygw, an S3 server that keeps objects as files, built from its Go module. It can be killed: what it has answered is durable."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path

from devstack.ports import free_port
from devstack.process import ServerProcess
from tests.deployment.go_build import built

_MODULE, _VERSION = "github.com/versity/versitygw", "v1.8.0"
KEY, SECRET = "test", "test"


class Gateway(ServerProcess):
    def __init__(self, directory: Path, log: Path) -> None:
        super().__init__("versitygw", directory, log)
        self.port = free_port()
        self._binary = built(_MODULE, f"{_MODULE}/cmd/versitygw", _VERSION)

    @property
    def ports(self) -> tuple[int, ...]:
        return (self.port,)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        """Attributes of objects are in files beside them, since not every file system keeps them."""
        objects, attributes = self.directory / "objects", self.directory / "attributes"
        objects.mkdir(exist_ok=True)
        attributes.mkdir(exist_ok=True)
        keys = ["--access", KEY, "--secret", SECRET, "--region", "us-east-1", "--port", f"127.0.0.1:{self.port}"]
        return [str(self._binary), *keys, "posix", "--sidecar", str(attributes), str(objects)]

    def ready(self) -> bool:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status < 500
        except OSError:
            return False
        finally:
            connection.close()
