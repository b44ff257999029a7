"""The demonstration, and the playground of `sluice dev`."""
