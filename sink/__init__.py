"""The sinks: where a changefeed's rows and DDLs go."""
