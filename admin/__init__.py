"""The admin API of a node: gRPC and HTTP."""
