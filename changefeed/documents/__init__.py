"""Documents and keys of MongoDB as bytes and as text, and the order of their values. Pure."""
