"""The reference reader of a directory of files: it knows nothing but the files."""
