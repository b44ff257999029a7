"""Capture by ranges of the oplog of a replica set. Twelve modules: finding entries, rows of entries, DDL of entries, how far it reaches."""
