"""What the creation of a changefeed would do: its tables, their sizes, about how long their copy takes."""
