"""Which tables and rows of the source a changefeed means, and what they are called downstream. Pure."""
