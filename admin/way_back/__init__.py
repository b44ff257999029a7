"""The way back after a cut-over: a changefeed from the new side to the old one, from where the cut-over ended; and what any cut-over does at both sides."""
