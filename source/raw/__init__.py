"""Shared by both captures and the reads of tables: BSON by offset, raw finds, raw rows."""
