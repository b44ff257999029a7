"""etcd for development: one server, or a cluster."""
