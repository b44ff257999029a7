"""Rows that a unique index refused, and how they get in."""
