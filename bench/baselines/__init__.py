"""The baselines of the figures."""
