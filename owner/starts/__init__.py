"""Where tables begin: at the start of a changefeed, or at a change of its filter."""
