"""`in_one_line`, `unreachable`: an error of the MongoDB driver in one line, with the members, the cause and the remedy. Pure.

The driver's own texts list the configured timeouts, repeat the whole reply, and describe the topology, which repeats the error of each
member. The topology's id makes each message different:

    db1:27017: [Errno 111] Connection refused (configured timeouts: ...),db2:27017: timed out (configured ...), Timeout: 5.0s,
    Topology Description: <TopologyDescription id: 6b02..., servers: [<ServerDescription ('db1', 27017) ... error=AutoReconnect('...')>, ...]>

becomes `db1:27017: Connection refused; db2:27017: timed out`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from changefeed.printable import shortened

_TOPOLOGY = re.compile(r"(?:, Timeout: [\d.]+s)?, Topology Description: (?P<topology>.*)$", re.DOTALL)
_MEMBER = re.compile(r"<ServerDescription \('(?P<host>[^']*)', (?P<port>\d+|None)\) server_type: (?P<type>\w+)")
_ERROR = re.compile(r"error=\w+\((?P<error>['\"].*)", re.DOTALL)
_TIMEOUTS = re.compile(r"\s*\(configured timeouts: [^)]*\)")
_REPLY = re.compile(r", full error: .*$", re.DOTALL)
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_OTHER_SET = re.compile(r'No replica set members available for replica set name "(?P<name>[^"]*)"')
_COMMAND = re.compile(r"(?P<refused>not authorized on .*? to execute command) \{ (?P<name>\w+): .*", re.DOTALL)
"""The server repeats the whole command, with the session and the cluster time."""
_MOST = 4_000
"""Characters. A server repeats the index or the validator that it refuses, of up to 16 MB."""
WRONG_CREDENTIALS = frozenset({11, 18, 334})
"""UserNotFound, AuthenticationFailed, MechanismUnavailable."""
ATLAS = 8000
"""Atlas uses this code for all errors of its own, a wrong password and a used-up quota alike: only the text differs."""
_STATES = {"RSPrimary": "primary", "RSSecondary": "secondary", "RSArbiter": "arbiter", "RSGhost": "not in a set"}


def in_one_line(text: str, details: Mapping[str, Any] | None = None) -> str:
    """`details` is the server's reply, if the error has one."""
    found = _TOPOLOGY.search(text)
    if found is not None:
        said = text[: found.start()]
        members = _members(found["topology"])
        if members and not said.startswith("No "):
            return members
        return f"{_plain(said)} ({members})" if members else _plain(said)
    if details and "errmsg" in details:
        text = str(details["errmsg"])
    return _plain(shortened(text, _MOST)) + _code(details)


def unreachable(who: str, text: str, details: Mapping[str, Any] | None = None) -> str:
    """The text of a connection error. `who` is `source` or `target`."""
    if gave_up_before_sending(text):
        late = "less time is left than its last answer took"
        return f"the {who} did not answer in time: {late}; check whether it is overloaded, or cut off from this node"
    said = in_one_line(text, details)
    other_set = _OTHER_SET.search(text)
    if other_set is not None:
        return (
            f"the {who} has no member of replica set {other_set['name']!r}: correct replicaSet in its connection string"
        )
    if details and "code" in details:
        return f"the {who}'s primary is changing: {said}; replication goes on with the next primary"
    if said.startswith(("No primary", "No replica set members")):
        members = said.partition(" (")[2].removesuffix(")")
        seen = f" ({members})" if members else ""
        return f"the {who} has no primary{seen}; replication goes on when a majority of its members has elected one"
    if said.endswith(": timed out") and not _TOPOLOGY.search(text):
        member = said.removesuffix(": timed out")
        return f"the {who} did not answer in time: {member}; check whether it is overloaded, or cut off from this node"
    return f"the {who} cannot be reached: {said}; check that its members run and that this node can connect to them"


def gave_up_before_sending(text: str) -> bool:
    """Whether the driver itself refused to send the command. Its error looks like a server's answer of code 50."""
    return text.startswith("operation would exceed time limit, remaining timeout")


def wrong_credentials(who: str) -> str:
    """The remedy. `who` is `source` or `sink`."""
    return (
        f"the user or the password in the {who}'s connection string is wrong: correct them, "
        "and authSource if the user is not defined in admin"
    )


def _members(topology: str) -> str:
    """`db1:27017, db2:27017: Connection refused; db3:27017: secondary`."""
    by_state: dict[str, list[str]] = defaultdict(list)
    for part in topology.split("<ServerDescription ")[1:]:
        member = _MEMBER.match(f"<ServerDescription {part}")
        if member is None:
            continue
        address = f"{member['host']}:{member['port']}" if member["port"] != "None" else member["host"]
        by_state[_state(member["type"], part, address)].append(address)
    return "; ".join(f"{', '.join(addresses)}: {state}" for state, addresses in by_state.items())


def _state(kind: str, part: str, address: str) -> str:
    found = _ERROR.search(part)
    if found is None:
        return _STATES.get(kind, "no answer yet" if kind == "Unknown" else kind)
    quote = found["error"][0]
    error = found["error"][1:].rpartition(f"{quote})")[0]
    return _plain(error).replace(f"{address}: ", "")


def _plain(text: str) -> str:
    text = _ERRNO.sub("", _TIMEOUTS.sub("", _REPLY.sub("", text)))
    text = _COMMAND.sub(r"\g<refused> \g<name>", text)
    return " ".join(text.split())


def _code(details: Mapping[str, Any] | None) -> str:
    if not details or "code" not in details:
        return ""
    name = details.get("codeName")
    return f" (code {details['code']}{f', {name}' if name else ''})"
