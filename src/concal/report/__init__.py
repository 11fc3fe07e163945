"""The report: one HTML file that shows numbers that exist."""
