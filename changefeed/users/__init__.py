"""The users and roles of a deployment."""
