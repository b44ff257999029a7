"""Reading MongoDB: resume tokens, the DDL watch, the catalog, the oplog's window, change windows and chunks."""
