"""Runs windows and copies in Spark."""
