"""The commands of `sluice`, one module for each top-level command."""
