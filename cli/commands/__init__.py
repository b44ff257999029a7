"""The commands of `sluice`, one module for each first word."""
