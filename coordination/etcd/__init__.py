"""The etcd operations that Sluice needs, over the wire and in memory."""
