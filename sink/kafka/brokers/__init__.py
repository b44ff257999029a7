"""What speaks with brokers: clients, sending, topics, errors."""
