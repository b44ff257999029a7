"""`connect`, `deployment_of`: the connection to a source, and the kind of its deployment.

The commands of one client go to one server (`OneServer`), as they belong together.

A change stream that is read by plain commands has its cursor on one mongos, but the driver would send each `getMore` to any of them.
And what one member of a replica set reports about its oplog is not true of another's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.codec_options import DatetimeConversion
from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.server_description import ServerDescription
from pymongo.server_type import SERVER_TYPE

from changefeed.capture import Capture
from changefeed.cluster_time import ClusterTime
from changefeed.config.uri import not_the_primary, refused_at_source
from changefeed.errors import ConfigurationError, SourceUnsupported
from credentials.clients import open_client
from source.ddl_description import ANY_TEXT
from source.errors import translated

Client = MongoClient[dict[str, Any]]

HELLO = "isMaster"
"""The older name of `hello`, which all servers from 4.2 to 8.x know."""

_SELECTION_MS = 5_000


def connect(uri: str, *, app_name: str = "sluice", capture: Capture | None = Capture.CHANGE_STREAM) -> Client:
    """A source that is gone is an error to retry, never a hang: the driver's monitor closes the connections of a server that does not answer.

    A busy source is waited for, however long: a socket timeout cannot distinguish the two, and would leave the operation running at the
    server. So the options of the URI take precedence, except such timeouts.

    With the oplog capture, or before the capture is decided, the member that the URI prefers is read. For change streams a preference is
    refused. Without a capture the primary is read, for reads that must be as new as every acknowledged write.
    """
    if capture is Capture.CHANGE_STREAM and (problem := refused_at_source(uri)) is not None:
        raise ConfigurationError([f"source: its connection string: {problem}"])
    defaults = {"appname": app_name, "serverSelectionTimeoutMS": _SELECTION_MS, "connectTimeoutMS": _SELECTION_MS}
    stated = {option.partition("=")[0].lower() for option in uri.partition("?")[2].split("&")}
    options: dict[str, Any] = {name: value for name, value in defaults.items() if name.lower() not in stated}
    if capture is None:
        options["read_preference"] = ReadPreference.PRIMARY
    return open_client(
        "source",
        uri,
        document_class=dict,
        tz_aware=True,
        datetime_conversion=DatetimeConversion.DATETIME_AUTO,
        server_selector=OneServer(),
        socketTimeoutMS=None,
        timeoutMS=None,
        **options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    version: tuple[int, int]
    sharded: bool

    @property
    def shows_all_ddl(self) -> bool:
        """Whether change streams accept `showExpandedEvents`."""
        return self.version >= (6, 0)


_OLDEST = (4, 2)


def read_command(client: Client, db: str, command: Mapping[str, Any], **options: Any) -> Any:
    """Run a command that reads. By default the driver sends commands to the primary, whatever the connection string says.

    All reads of a client go to one member (`OneServer`), so that the history that one command reports is the history that another reads.
    """
    return client[db].command(dict(command), read_preference=client.read_preference, **options)


def read_cursor(client: Client, db: str, command: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """By a plain command: the driver's helpers cannot read every date that a validator may contain, and they use the primary. Texts may be no UTF-8."""
    return client[db].cursor_command(dict(command), codec_options=ANY_TEXT, read_preference=client.read_preference)


MAJORITY: Mapping[str, object] = {"level": "majority"}


def config_documents(
    client: Client,
    coll: str,
    filter: Mapping[str, Any] | None = None,
    *,
    concern: Mapping[str, object] = MAJORITY,
    **more: Any,
) -> list[Mapping[str, Any]]:
    """Of a collection of `config`. `more`: arguments of `find`."""
    return list(read_cursor(client, "config", {"find": coll, "filter": filter or {}, "readConcern": concern, **more}))


def member_read(client: Client) -> object:
    """The member that answered this client's last read. None before the first. Two values are compared to detect a change of member."""
    selector = client.options.server_selector
    if not isinstance(selector, OneServer):
        return None
    return selector.latest(primary=client.read_preference == ReadPreference.PRIMARY)


def is_router(client: Client) -> bool:
    """Works without a primary, unlike the driver's own check."""
    return bool(read_command(client, "admin", {HELLO: 1}).get("msg") == "isdbgrid")


def is_config_server(client: Client) -> bool:
    with translated("reading the type of the source"):
        return bool(read_command(client, "admin", {HELLO: 1}).get("configsvr"))


def version_of(client: Client) -> tuple[int, int]:
    """Of the member that reads go to. While a deployment is upgraded, others may differ."""
    with translated("reading the version of the source"):
        first, second, *_ = read_command(client, "admin", {"buildInfo": 1})["versionArray"]
    return first, second


def deployment_of(client: Client) -> Deployment:
    with translated("reading the type of the source"):
        hello = read_command(client, "admin", {HELLO: 1})
    version = version_of(client)
    found = Deployment(version=version, sharded=hello.get("msg") == "isdbgrid")
    if not found.sharded and "setName" not in hello:
        raise SourceUnsupported(
            "the source is a standalone server, which has no oplog; restart it with --replSet and run rs.initiate()"
        )
    if found.version < _OLDEST:
        raise SourceUnsupported(f"the source is MongoDB {version[0]}.{version[1]}; the oldest supported version is 4.2")
    return found


def refused_member(client: Client) -> str | None:
    """The problem, if the connection string allows only one member and that is not the primary."""
    with translated("reading the type of the source"):
        hello = client.admin.command(HELLO)
    return not_the_primary(hello) if client.topology_description.topology_type_name == "Single" else None


def session_time(session: ClientSession) -> ClusterTime:
    """The time of the last reply in this session. A server that gives no operation time gives a cluster time."""
    time = session.operation_time
    if time is None and session.cluster_time is not None:
        time = session.cluster_time["clusterTime"]
    if time is None:
        raise SourceUnsupported(
            "the source's replies carry no cluster time; it must be a replica set or a sharded cluster"
        )
    return ClusterTime.from_bson(time)


class OneServer:
    """Keeps the server that it chose first, the nearest one at that time, as long as that server is available."""

    def __init__(self) -> None:
        self._address: tuple[str, int | None] | None = None
        self._primary: tuple[str, int | None] | None = None

    def latest(self, *, primary: bool) -> tuple[str, int | None] | None:
        """The server of the last command that had to use the primary, or of the last one that could use any member."""
        return self._primary if primary else self._address

    def __call__(self, servers: Sequence[ServerDescription]) -> Sequence[ServerDescription]:
        if _is_for_the_primary(servers):
            self._primary = servers[0].address
            return servers
        chosen = [server for server in servers if server.address == self._address] or sorted(servers, key=_distance)[:1]
        if chosen:
            self._address = chosen[0].address
        return chosen


def _is_for_the_primary(servers: Sequence[ServerDescription]) -> bool:
    """Whether the command has to use the primary, as writes have. It does not change which server is used for reads."""
    return len(servers) == 1 and servers[0].server_type == SERVER_TYPE.RSPrimary


def _distance(server: ServerDescription) -> float:
    return server.round_trip_time if server.round_trip_time is not None else float("inf")
