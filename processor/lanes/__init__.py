"""Decides which tables share a window, and how wide it is. Pure."""
