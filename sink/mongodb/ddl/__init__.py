"""DDL at a MongoDB target, applied exactly once."""
