"""The present content of the source: its catalog, and the documents of its tables."""
