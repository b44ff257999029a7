"""Which tables a cluster has, and what DDL the entries of its shards are together. Pure."""
