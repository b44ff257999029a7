"""Where tables begin: with a changefeed, or with a changed filter."""
