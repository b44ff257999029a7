"""The owner's access to sources and sinks: connections, heartbeats, the oplog guard."""
