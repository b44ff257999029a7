"""One change stream as bytes: replies, events, and events that are larger than a reply."""
