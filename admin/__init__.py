CODE_KEY = "sluice-error-code"
DETAILS_KEY = "sluice-error-details-bin"
"""The metadata of an error: its stable code, and its problems as an `ErrorDetails`."""
