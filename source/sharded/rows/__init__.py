"""The rows of a sharded cluster, as a node's tasks read them: the oplogs of its shards, in one order."""
