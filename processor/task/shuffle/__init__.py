"""Divides the rows of a wide window among tasks. Pure."""
