"""Finds problems of a changefeed before it is accepted."""
