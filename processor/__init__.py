"""Replicating the assigned tables up to the barrier: lanes, windows, Spark jobs, the initial copy, the loop."""
