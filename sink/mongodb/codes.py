"""Codes of the server's answers that mean something to a DDL. Pure."""

UUID_MISMATCH = 361
NAMESPACE_NOT_FOUND = 26
INDEX_NOT_FOUND = 27
