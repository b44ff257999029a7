"""The desired state of changefeeds, which users change and etcd stores."""
