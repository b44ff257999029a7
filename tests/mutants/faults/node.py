"""Faults of the room `node`."""

from __future__ import annotations

from tests.mutants.fault import Fault

_PROCESS = ("tests/component/node/test_process.py",)

NODE = (
    Fault(
        "a node opens its admin API to other machines without authentication",
        "if not authenticated and not self.allow_unauthenticated and not loopback(self.address):",
        "if not authenticated and self.allow_unauthenticated and not loopback(self.address):",
    ),
    Fault(
        "every address counts as this machine alone",
        "return ipaddress.ip_address(host).is_loopback",
        "return ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified",
    ),
    Fault(
        "flags do not override the file",
        "return cls.parse(merged(yaml_text.read(text) if text is not None else {}, flags))",
        "return cls.parse(merged(flags, yaml_text.read(text) if text is not None else {}))",
    ),
    Fault(
        "changefeeds may read the secrets of their node",
        "own=tuple(str(path) for path in own if path is not None)",
        "own=()",
    ),
    Fault(
        "the health of a node overwrites its drain",
        "compare_and_swap(self._etcd, (ModRevIs(self.key, found.mod_rev),), (put,))",
        "compare_and_swap(self._etcd, (), (put,))",
    ),
    Fault(
        "a node's record loses its lease",
        "put = Put(self.key, encode(record), lease)",
        "put = Put(self.key, encode(record))",
    ),
    Fault(
        "a node that cannot write to etcd is ready",
        '        if trouble is not None:\n            return f"the node cannot write to etcd',
        '        if trouble is not None and not membership.alive:\n            return f"the node cannot write to etcd',
        tests=("tests/unit/node", "tests/component/node/test_etcd_that_takes_no_writes.py"),
    ),
    Fault(
        "a node that stops does not hand its tables over",
        "            if self._stopping.is_set():\n                self._hand_over(membership)\n",
        "",
        tests=("tests/component/node/test_hand_over.py",),
    ),
    Fault(
        "a node that stops is served by its load balancer",
        '        if self._stopping.is_set():\n            return "the node is stopping"\n',
        "",
        tests=_PROCESS,
    ),
)
