"""Compares the documents of a pair of tables."""
