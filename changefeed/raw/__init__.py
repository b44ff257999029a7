"""BSON as bytes, read by offset. Pure."""
