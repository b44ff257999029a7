"""Which deployments the sides of a changefeed are."""
