"""Reading what a changefeed has written as messages, wherever they are, and making a MongoDB of it."""
