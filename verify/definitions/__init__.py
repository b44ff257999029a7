"""Comparing what the two sides say of their tables."""
