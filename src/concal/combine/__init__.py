"""Consensus: from the periods' Gaussian summaries to the posterior of one pooled analysis."""
