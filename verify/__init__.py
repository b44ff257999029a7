"""Compares the source and the target of a changefeed."""
