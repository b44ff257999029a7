"""A real sharded cluster without `mongos`: config servers, shards, and a small router that says to them what a `mongos` would say."""
