"""What a figure is measured beside."""
