"""A real Kafka broker: its jars come from Maven Central by the Ivy inside PySpark."""
