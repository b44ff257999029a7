"""The web console: pages that show what the admin API knows, and forms that call its services."""
