"""A node that is only a candidate for owner, for tests that stop, resume and kill it: `standing_node.py ENDPOINT CLUSTER NAME TTL`.

Prints `leading EPOCH`, then writes the key `beat` without pause. When its session ends it prints `lost`, writes once more, as a zombie
would, and prints the result.
"""

from __future__ import annotations

import sys
from datetime import timedelta

from changefeed.errors import FencedError
from changefeed.records.node import Role
from coordination.election import Candidate
from coordination.etcd.client import EtcdClient
from coordination.etcd.protocol import EtcdConfig, Put
from coordination.fenced import FencedStore
from coordination.layout import Layout
from coordination.session import Session, open_session
from tests.described import described


def main(endpoint: str, cluster: str, name: str, ttl: str) -> None:
    layout = Layout(cluster)
    with EtcdClient(EtcdConfig(endpoints=(endpoint,))) as etcd:
        session, _ = open_session(
            etcd, layout, name=name, describe=described(name, Role.OWNER), ttl=timedelta(seconds=float(ttl))
        )
        session.start()
        candidate = Candidate(etcd, layout, lease=session.lease, node=session.node)
        store = None
        while store is None:
            store = candidate.campaign(timedelta(seconds=1))
        say(f"leading {store.epoch}")
        beat(session, store, Put(f"{layout.root}beat", name.encode()))


def beat(session: Session, store: FencedStore, put: Put) -> None:
    while session.alive:
        try:
            store.commit([put])
        except FencedError:
            say("fenced before lost")
    say("lost")
    try:
        store.commit([put])
    except FencedError:
        say("fenced")
    else:
        say("wrote")


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
