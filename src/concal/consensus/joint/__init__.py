"""Consensus of items, links and population together, by sampling."""
