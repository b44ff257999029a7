"""A server with the protocol of S3 for tests, and what can happen between it and its clients."""
