"""Replicates the assigned tables up to the barrier: lanes, windows, Spark jobs, initial copies, the tick loop."""
