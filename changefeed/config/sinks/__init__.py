"""What the URIs of sinks say, and what kinds of sinks can do."""
