"""DDL of a source, however it is captured: the watch, what an event says, its place."""
