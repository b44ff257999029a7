"""What the owner does next for one changefeed. Pure."""
