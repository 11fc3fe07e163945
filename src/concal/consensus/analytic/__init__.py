"""Consensus from sums over the periods: Gaussians in slope and intercept, links at their means."""
