"""Messages in topics of Kafka: clients and topics, what is written there, and how it is read again."""
