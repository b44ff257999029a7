"""How fast the tasks of a changefeed may write: what a user allows, split over nodes, executors and tasks."""
