"""What stands in the source now: its catalog, and the documents of its tables."""
