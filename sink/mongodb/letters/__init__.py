"""Dead letters: rows that the target refuses, kept in a collection of the target until they are written or dropped."""
