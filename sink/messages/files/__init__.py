"""Messages in files: a directory or a bucket, what is written there, and how it is read again."""
