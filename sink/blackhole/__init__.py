"""A sink that accepts everything and stores nothing, to measure the stages before a sink."""
