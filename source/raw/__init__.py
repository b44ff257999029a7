"""Shared by both captures and the reads of tables: raw finds, raw rows."""
