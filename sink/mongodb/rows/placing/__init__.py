"""Rows of tables that the target shards: each write names the whole shard key."""
