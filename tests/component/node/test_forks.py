"""A node starts Spark's JVM by a fork while its threads use gRPC."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

_SCRIPT = """
import os, subprocess, sys, threading
import cli.main
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig

def ask():
    while True:
        client.range("/nothing/")

with EtcdClient(EtcdConfig(endpoints=(sys.argv[1],))) as client:
    for _ in range(4):
        threading.Thread(target=ask, daemon=True).start()
    for _ in range(60):
        print(subprocess.Popen(["/bin/true"], preexec_fn=lambda: None).wait(20), flush=True)
    os._exit(0)
"""


def test_processes_are_started_while_grpc_is_at_work(etcd_endpoint: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT, etcd_endpoint], capture_output=True, text=True, timeout=120, check=True
    )
    assert Counter(ran.stdout.split()) == {"0": 60}
