"""Capture by change streams."""
