"""What the owner decides for one changefeed at each tick, from what it knows. Pure."""
