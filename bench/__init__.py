"""Repeatable measurements, each with a baseline from the same run. `python -m bench --help`."""
