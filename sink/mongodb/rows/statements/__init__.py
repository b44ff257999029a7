"""What one change is as a statement for the target."""
