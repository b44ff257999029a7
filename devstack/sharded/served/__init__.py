"""A stand-in for a `mongos`: it speaks the wire protocol to clients, and the internal commands to real shards and config servers."""
