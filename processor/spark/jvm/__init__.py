"""The driver's JVM: how it is set up, its log, its executors, what it takes."""
