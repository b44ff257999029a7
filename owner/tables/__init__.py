"""Which tables a changefeed has, how far each is, and which node replicates it. Pure."""
