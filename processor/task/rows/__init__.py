"""Turns the raw events of a window into the writes of a sink."""
