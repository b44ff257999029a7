"""Compares the definitions of tables: their kind, options and indexes."""
