"""Where the target has rows, in tables that it shards, too, and how rows leave their places for others."""
