"""What runs inside a Spark task."""
