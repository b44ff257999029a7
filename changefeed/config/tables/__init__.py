"""Which tables and rows of the source a changefeed replicates, and their names downstream. Pure."""
