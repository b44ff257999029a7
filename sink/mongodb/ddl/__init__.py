"""DDL into MongoDB, done once."""
