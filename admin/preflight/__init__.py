"""What would keep a changefeed from working, found before it is accepted."""
