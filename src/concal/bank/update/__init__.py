"""The way to the next version: a contribution, and one function that builds everything else from it."""
