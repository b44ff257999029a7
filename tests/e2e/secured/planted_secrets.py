"""Secrets that nothing may repeat, and everything that the system writes."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

from coordination.etcd.client import EtcdClient
from coordination.etcd.config import EtcdConfig
from tests.component.node.server_process import Server


class PlantedSecrets:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._all: list[str] = []
        self.plain = self.new("plain")
        self.operator = directory / "operator"
        self.operator.write_text(self.new("operator"))

    def new(self, kind: str = "p@ss/word:?") -> str:
        """With characters that a URI must escape."""
        random = secrets.token_hex(8)
        self._all.append(random)
        return f"{kind}{random}"

    def put(self, name: str, content: str) -> None:
        (self.directory / name).write_text(f"{content}\n")

    def reference(self, name: str) -> str:
        return f"${{file:{self.directory / name}}}"

    def tokens(self) -> str:
        """The path of the node's token file."""
        path = self.directory.parent / "tokens"
        path.write_text(f"operator:{self.operator.read_text()}\nviewer:{self.new('viewer')}\n")
        return str(path)

    def found_in(self, written: Mapping[str, bytes]) -> list[str]:
        """Each place with what stands around the secret."""
        return [
            f"{name}: {content[max(0, at - 80) : at + 30]!r}"
            for name, content in written.items()
            for secret in self._all
            for form in {secret, quote(secret), quote_plus(secret)}
            if (at := content.lower().find(form.lower().encode())) >= 0
        ]


class Told:
    """All answers of the command line."""

    def __init__(self, node: Server, token_file: Path) -> None:
        self._node = node
        self._token_file = str(token_file)
        self.text = ""

    def sluice(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        answer = self._node.sluice(*arguments, environment={"SLUICE_TOKEN_FILE": self._token_file})
        self.text += answer.stdout + answer.stderr
        return answer

    def everything(self, changefeed: str) -> None:
        for arguments in (
            ("changefeed", "list", "-o", "json"),
            ("changefeed", "query", changefeed, "-o", "yaml"),
            ("table", "list", changefeed, "-o", "json"),
            ("ddl", "list", changefeed, "-o", "json"),
            ("node", "list", "-o", "json"),
        ):
            assert self.sluice(*arguments).returncode == 0


def in_etcd(endpoint: str, prefix: str) -> dict[str, bytes]:
    with EtcdClient(EtcdConfig(endpoints=(endpoint,))) as client:
        return {f"etcd {item.key}": item.value for item in client.range(prefix).items}


def in_files(directory: Path) -> dict[str, bytes]:
    """The files that are there now. Spark removes some at any time."""
    found: dict[str, bytes] = {}
    for path in directory.rglob("*"):
        try:
            found[str(path)] = path.read_bytes() if path.is_file() else b""
        except FileNotFoundError:
            continue
    return found
