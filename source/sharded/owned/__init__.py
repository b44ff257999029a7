"""The tables of a cluster as they stand: what each shard owns of them, at one time."""
