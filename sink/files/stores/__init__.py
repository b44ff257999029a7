"""Where the files of a sink are: one protocol, `Store`, and a module for each kind of place."""
