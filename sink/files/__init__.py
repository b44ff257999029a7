"""The sink that writes messages into files of a directory that all nodes share, and the reader of such a directory."""
