"""Measurements of several servers at once."""
