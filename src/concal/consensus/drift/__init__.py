"""Items that differ between periods."""
