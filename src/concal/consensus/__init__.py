"""Consensus: from the periods' likelihood factors to the posterior of a pooled analysis. The verb: `concal.combine`."""
