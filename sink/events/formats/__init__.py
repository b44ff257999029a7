"""The formats of messages, one interface for all: what a broker gets as key, value and headers. Pure."""
