"""Secrets that nothing may repeat, and everything that the system writes."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, quote_plus

import yaml

from admin.stubs.sluice.admin.v1 import admin_pb2 as pb
from cli.channel import Connection, ServerAddress
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig
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
        path.write_text(f"maria:operator:{self.operator.read_text()}\nci:viewer:{self.new('viewer')}\n")
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
    """All answers of the command line and of the admin API."""

    def __init__(self, node: Server, token_file: Path) -> None:
        self._node = node
        self._token_file = token_file
        self.text = ""

    def sluice(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        answer = self._node.sluice(*arguments, environment={"SLUICE_TOKEN_FILE": str(self._token_file)})
        self.text += answer.stdout + answer.stderr
        return answer

    def problems_of(self, configuration: Mapping[str, object]) -> Sequence[str]:
        with self._api() as api:
            request = pb.PlanChangefeedRequest(create={"configuration": yaml.safe_dump(dict(configuration))})
            plan = list(api.stream(api.changefeeds.PlanChangefeed, request))
        self.text += "\n".join(map(str, plan))
        return list(plan[0].problems)

    def everything(self) -> None:
        with self._api() as api:
            feeds = api.ask(api.changefeeds.ListChangefeeds, pb.ListChangefeedsRequest())
            answers = [feeds, api.ask(api.nodes.ListNodes, pb.ListNodesRequest())]
            for feed in feeds.changefeeds:
                answers.append(api.ask(api.changefeeds.GetChangefeed, pb.GetChangefeedRequest(id=feed.id)))
                answers += api.stream(api.tables.ListTables, pb.ListTablesRequest(changefeed=feed.id))
                answers += api.stream(api.ddls.ListDdl, pb.ListDdlRequest(changefeed=feed.id))
        self.text += "\n".join(map(str, answers))

    def _api(self) -> Connection:
        return Connection(ServerAddress(server=self._node.address, token_file=self._token_file))


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
