"""The hosts of a cluster's shards: how each is connected, and whether one that was removed still answers."""
