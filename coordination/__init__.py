"""Everything that stands in etcd: session, election, key layout, fenced transactions, consistent watch."""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
"""Read when gRPC is first imported. What it does around a fork broke one in four: the child, on its way to become Spark's JVM, crashed, or streams of
the parent did. Nothing here uses gRPC on after a fork, so nothing is missed.
"""
