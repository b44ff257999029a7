"""DDL of a source, for both captures: the watch, the content of an event, its place."""
