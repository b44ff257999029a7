"""A changefeed's DDL from the source to the target: feed, scope, barrier, execution, jobs."""
