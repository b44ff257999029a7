"""What the owner asks of sources and sinks besides their DDL."""
