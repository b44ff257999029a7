"""Repeatable measurements, each figure beside a baseline from the same run. `python -m bench --help`."""
