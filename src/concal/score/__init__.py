"""People on the bank's metric: scores, plausible values, information, and how much of a score's error is whose."""
