"""The vocabulary and the rules of a changefeed. Pure: no I/O, no clock, no randomness of its own."""
