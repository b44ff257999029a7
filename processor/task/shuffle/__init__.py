"""How the rows of a wide window are divided among tasks. Pure."""
