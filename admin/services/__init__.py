"""The services of the admin API, and their messages."""
