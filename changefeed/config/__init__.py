"""The configuration of a changefeed: what a user writes, and what is wrong with it. Pure."""
