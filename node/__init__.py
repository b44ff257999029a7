"""Puts a server process together: roles, start, stop."""
