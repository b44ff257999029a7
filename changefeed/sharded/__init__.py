"""What a changefeed of a sharded source knows of its shards. Pure."""
