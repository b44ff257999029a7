"""MongoDB as a sink."""
