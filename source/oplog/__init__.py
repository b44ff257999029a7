"""Capture by ranges of the oplog of a replica set."""
