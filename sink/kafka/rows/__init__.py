"""Rows into topics, in tasks."""
