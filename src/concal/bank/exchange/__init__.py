"""Draws and parameters from other software into a bank, and a bank's items out to other software."""
