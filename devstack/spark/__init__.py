"""A Spark standalone cluster for development: a master and workers, each in a process of its own."""
