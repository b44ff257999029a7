"""Regular expressions of `ignore_where`. Pure."""
