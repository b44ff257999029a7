"""Reading MongoDB: `source.py` is what the rest of the product sees, `opening.py` is where the kind of source is asked for."""
