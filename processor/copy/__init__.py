"""The initial copy of a table."""
