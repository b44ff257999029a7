"""The measurements of what many tables cost."""
