"""Coordination through etcd: session, election, key layout, fenced transactions, consistent watch."""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
"""gRPC reads this when it is first imported. Its fork support broke one fork in four: the child that becomes Spark's JVM crashed, or
streams of the parent did. No child uses gRPC after a fork, so the support is not needed.
"""
