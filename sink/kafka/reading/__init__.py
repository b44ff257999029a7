"""The reference consumer of topics: it knows nothing but them."""
