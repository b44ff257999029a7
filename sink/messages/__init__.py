"""What all sinks of messages share: the messages and their formats, files, Kafka, and reading them again."""
