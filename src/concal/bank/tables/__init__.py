"""Calibrations and results as tables, and the tables people look at."""
