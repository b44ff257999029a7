"""Reading a sharded cluster by the oplogs of its shards and of its config servers. Nothing of the product uses it yet."""
