"""Reading a sharded cluster by the oplogs of its shards and of its config servers. `source.py` is what the product uses."""
