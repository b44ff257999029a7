"""Texts of PyMongo 4.17 about real servers, word for word, with the server's reply if the error has one."""

from __future__ import annotations

from typing import Any

from pymongo.errors import (
    AutoReconnect,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WTimeoutError,
)

_TIMEOUTS = "(configured timeouts: socketTimeoutMS: 1500.0ms, connectTimeoutMS: 1500.0ms)"
_CLOCK = "'$clusterTime': {'clusterTime': Timestamp(1795335502, 2), 'signature': {'hash': b'\\x00\\x00', 'keyId': 0}}"

ALL_REFUSE = (
    f"db2:27017: [Errno 111] Connection refused {_TIMEOUTS},db3:27017: [Errno 111] Connection refused {_TIMEOUTS},"
    f"db1:27017: timed out {_TIMEOUTS}, Timeout: 1.5s, Topology Description: <TopologyDescription id: 6b02a553b2c1421c0edf0de1, "
    "topology_type: ReplicaSetNoPrimary, servers: ["
    f"<ServerDescription ('db1', 27017) server_type: Unknown, rtt: None, error=NetworkTimeout('db1:27017: timed out {_TIMEOUTS}')>, "
    "<ServerDescription ('db2', 27017) server_type: Unknown, rtt: None, "
    f"error=AutoReconnect('db2:27017: [Errno 111] Connection refused {_TIMEOUTS}')>, "
    "<ServerDescription ('db3', 27017) server_type: Unknown, rtt: None, "
    f"error=AutoReconnect('db3:27017: [Errno 111] Connection refused {_TIMEOUTS}')>]>"
)
NO_PRIMARY = (
    "No primary available for writes, Timeout: 1.5s, Topology Description: <TopologyDescription id: 6b02a553b2c1421c0edf0de1, "
    "topology_type: ReplicaSetNoPrimary, servers: [<ServerDescription ('db1', 27017) server_type: RSSecondary, rtt: 0.0023>, "
    "<ServerDescription ('db2', 27017) server_type: Unknown, rtt: None, "
    f"error=AutoReconnect('db2:27017: [Errno 111] Connection refused {_TIMEOUTS}')>, "
    f"<ServerDescription ('db3', 27017) server_type: Unknown, rtt: None, error=NetworkTimeout('db3:27017: timed out {_TIMEOUTS}')>]>"
)
NO_PRIMARY_TO_READ = NO_PRIMARY.replace(
    "No primary available for writes", 'No replica set members match selector "Primary()"'
)
OTHER_SET = (
    'No replica set members available for replica set name "other", Timeout: 1.5s, Topology Description: '
    "<TopologyDescription id: 6b02a549b2c1421c0edf0dcf, topology_type: ReplicaSetNoPrimary, servers: []>"
)
UNKNOWN_HOST = (
    f"no.such.host:27017: [Errno -2] Name or service not known {_TIMEOUTS}, Timeout: 1.5s, Topology Description: "
    "<TopologyDescription id: 6b02a54ab2c1421c0edf0dd0, topology_type: ReplicaSetNoPrimary, servers: [<ServerDescription "
    "('no.such.host', 27017) server_type: Unknown, rtt: None, "
    f"error=AutoReconnect('no.such.host:27017: [Errno -2] Name or service not known {_TIMEOUTS}')>]>"
)
NO_TLS = (
    f"SSL handshake failed: db1:27017: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006) {_TIMEOUTS}, "
    "Timeout: 1.5s, Topology Description: <TopologyDescription id: 6b02a54cb2c1421c0edf0dd1, topology_type: Unknown, servers: "
    "[<ServerDescription ('db1', 27017) server_type: Unknown, rtt: None, error=AutoReconnect('SSL handshake failed: db1:27017: "
    f"[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol (_ssl.c:1006) {_TIMEOUTS}')>]>"
)
TIMED_OUT = f"db1:27017: timed out {_TIMEOUTS}"
CLOSED = f"db1:27017: connection closed {_TIMEOUTS}"


def reply(code: int, name: str, errmsg: str) -> dict[str, Any]:
    return {"ok": 0.0, "errmsg": errmsg, "code": code, "codeName": name}


def with_reply(said: dict[str, Any]) -> str:
    return f"{said['errmsg']}, full error: {str(said)[:-1]}, {_CLOCK}}}"


def real_errors() -> list[PyMongoError]:
    """One of each kind of error that a failing source or target raises."""
    late = reply(64, "WriteConcernFailed", "waiting for replication timed out")
    stepped_down = reply(189, "PrimarySteppedDown", "operation was interrupted")
    expired = reply(50, "MaxTimeMSExpired", "operation exceeded time limit")
    refused = reply(13, "Unauthorized", 'not authorized on shop to execute command { insert: "a",\n ordered: true }')
    return [
        ServerSelectionTimeoutError(ALL_REFUSE),
        ServerSelectionTimeoutError(NO_PRIMARY),
        ServerSelectionTimeoutError(NO_PRIMARY_TO_READ),
        ServerSelectionTimeoutError(OTHER_SET),
        ServerSelectionTimeoutError(UNKNOWN_HOST),
        ServerSelectionTimeoutError(NO_TLS),
        NetworkTimeout(TIMED_OUT),
        AutoReconnect(CLOSED),
        NotPrimaryError(stepped_down["errmsg"], stepped_down),
        WTimeoutError(late["errmsg"], 64, late),
        ExecutionTimeout(expired["errmsg"], 50, expired),
        OperationFailure(refused["errmsg"], 13, refused),
    ]
