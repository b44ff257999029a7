"""Messages of rows as rows of Parquet files, with one schema for all tables."""
