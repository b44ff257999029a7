"""What a verification reads at the source."""
