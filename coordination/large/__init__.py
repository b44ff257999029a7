"""Definitions that are too large for a record: in etcd they stand beside it, by their digest."""
