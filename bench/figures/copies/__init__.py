"""The measurements, one module for each."""
