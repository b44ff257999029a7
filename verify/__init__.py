"""Whether source and target of a changefeed are equal."""
