"""Which tables a changefeed has, how far each one is, and which node replicates it. Pure."""
