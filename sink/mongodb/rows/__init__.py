"""Writes row changes and whole documents into MongoDB: the plan of a batch, its commands, and the meaning of their replies."""
