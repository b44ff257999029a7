"""The owner: watches the source's DDL, sets the barrier, runs DDL downstream, assigns tables to nodes."""
