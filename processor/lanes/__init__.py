"""Which tables share a window, and how wide it is. Pure."""
