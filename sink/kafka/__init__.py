"""The sink in Kafka: rows by idempotent producers in tasks, DDL and watermarks by the owner."""
