"""From the raw events of a window to the writes of a sink."""
