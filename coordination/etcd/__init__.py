"""etcd: what is needed of it, over the wire and in memory."""
