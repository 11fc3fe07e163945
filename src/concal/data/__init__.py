"""Data: ids, missing values, categories, design matrices, and messages about bad rows."""
