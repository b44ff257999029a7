"""What users want of changefeeds, as it stands in etcd."""
