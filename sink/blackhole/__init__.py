"""A sink that takes everything and keeps nothing: for measuring what comes before it."""
