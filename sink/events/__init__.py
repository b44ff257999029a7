"""The messages of event sinks: positions, formats and encoders. Pure: nothing here knows where a message goes."""
