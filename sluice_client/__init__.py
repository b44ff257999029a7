"""What reads a changefeed that is in files: of its own, without a server, and without MongoDB. The servers write what stands here."""
